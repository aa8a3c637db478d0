"""The build script: it must not call a site done that lacks a page, nor show stale outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import build_book
from build_book import (
    BuildError,
    build,
    build_environment,
    drop_stale_cache,
    missing_pages,
    outputs_key,
    toc_pages,
)


def test_every_level_of_the_contents_is_counted() -> None:
    toc = {
        "root": "book/index",
        "parts": [
            {
                "caption": "A",
                "chapters": [{"file": "book/a.md", "sections": [{"file": "b.ipynb"}]}],
            },
            {"caption": "B", "chapters": [{"file": "c"}, {"url": "https://example.org"}]},
        ],
    }
    assert toc_pages(toc) == ["book/index", "book/a", "b", "c"]


@pytest.mark.parametrize(
    ("toc", "said"),
    [
        ({}, "no `root`"),
        ({"chapters": [{"file": "a"}]}, "no `root`"),
        ({"root": "a", "chapters": [{"file": "b"}, {"file": "a.md"}]}, "listed twice: a"),
    ],
)
def test_a_bad_table_of_contents_is_refused(toc: dict[str, object], said: str) -> None:
    with pytest.raises(BuildError, match=said):
        toc_pages(toc)


def test_a_page_that_is_absent_or_empty_is_missing(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.html").write_text("<h1>A</h1>")
    (tmp_path / "book" / "b.html").write_text("<html></html>")
    assert missing_pages(tmp_path, ["book/a", "book/b", "book/c"]) == ["book/b", "book/c"]


def write_source(folder: Path) -> Path:
    """A source tree with a package of one module and a start page."""
    (folder / "src" / "minilab").mkdir(parents=True)
    (folder / "src" / "minilab" / "cost.py").write_text("ALPHA = 1\n")
    (folder / "_toc.yml").write_text("root: index\nchapters: [{file: one}]\n")
    return folder


def test_a_generator_that_writes_nothing_is_not_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jupyter Book 2 does so with this configuration, and exits 0."""
    monkeypatch.setattr(build_book, "run_jupyter_book", lambda *_: None)
    with pytest.raises(BuildError, match=r"2 of 2 pages .*index, one"):
        build(write_source(tmp_path), tmp_path)


def test_a_page_gone_from_the_contents_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    html = tmp_path / "_build" / "html"
    html.mkdir(parents=True)
    (html / "old.html").write_text("<h1>Old</h1>")

    def write(*_: object) -> None:
        html.mkdir()
        for page in ("index", "one"):
            (html / f"{page}.html").write_text("<h1>x</h1>")

    monkeypatch.setattr(build_book, "run_jupyter_book", write)
    assert build(write_source(tmp_path), tmp_path) == ["index", "one"]
    assert not (html / "old.html").exists()


def test_the_key_follows_the_package_and_the_data(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    data = tmp_path / "data"
    data.mkdir()
    first = outputs_key(source, str(data))
    assert outputs_key(source, str(data)) == first
    (source / "src" / "minilab" / "__pycache__").mkdir()
    (source / "src" / "minilab" / "__pycache__" / "cost.pyc").write_bytes(b"x")
    assert outputs_key(source, str(data)) == first, "a compiled file is not a change"
    (data / "trace.csv").write_text("a\n")
    with_trace = outputs_key(source, str(data))
    assert with_trace != first, "a page would go on showing the stand-in"
    (source / "src" / "minilab" / "cost.py").write_text("ALPHA = 2\n")
    changed = outputs_key(source, str(data))
    assert changed != with_trace, "a page would show the old ALPHA"
    results = source / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "aot.json").write_text('{"stack": 0}')
    measured = outputs_key(source, str(data))
    assert measured != changed, "a page would say that nothing was measured"
    (results / "aot.json").write_text('{"stack": 8}')
    assert outputs_key(source, str(data)) != measured, "a page would draw the old measurement"
    assert (
        outputs_key(source, None) == outputs_key(source, "") == outputs_key(source, tmp_path / "no")
    )


def test_a_trace_that_was_fetched_makes_the_pages_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a page goes on saying "stand-in" to a reader who has just downloaded the real one."""
    monkeypatch.setattr(build_book, "run_jupyter_book", lambda *_: None)
    monkeypatch.setenv("MINILAB_CACHE", str(tmp_path / "cache"))
    keys = []
    monkeypatch.setattr(build_book, "drop_stale_cache", lambda _, key: keys.append(key))
    source = write_source(tmp_path / "source")
    for _ in range(2):
        with pytest.raises(BuildError):
            build(source, tmp_path)
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / "trace.csv").write_text("a\n")
    assert len(set(keys)) == 2


def test_cached_outputs_go_when_the_key_changes_and_stay_when_not(tmp_path: Path) -> None:
    assert not drop_stale_cache(tmp_path, "k1")
    kept = tmp_path / ".jupyter_cache" / "global.db"
    kept.write_text("outputs")
    assert not drop_stale_cache(tmp_path, "k1")
    assert kept.exists()
    assert drop_stale_cache(tmp_path, "k2")
    assert not kept.exists()
    assert not drop_stale_cache(tmp_path, "k2")


def test_a_cache_of_unknown_origin_is_not_trusted(tmp_path: Path) -> None:
    old = tmp_path / ".jupyter_cache" / "global.db"
    old.parent.mkdir()
    old.write_text("from a build without this script")
    assert drop_stale_cache(tmp_path, "k1")
    assert not old.exists()


def test_kernels_find_the_package_and_the_data_from_a_page_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINILAB_DATA", "data")
    monkeypatch.setenv("MPLBACKEND", "agg")
    env = build_environment(tmp_path, "key")
    assert env["MINILAB_DATA"] == str(tmp_path / "data")
    assert env["PYTHONPATH"].split(":")[0] == str(tmp_path / "src")
    assert env["MINILAB_STATIC"] == "1"
    assert "MPLBACKEND" not in env, "figures would be drawn into nothing"


def test_a_failed_build_exits_1_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "_toc.yml").write_text("chapters: []\n")
    assert build_book.main(["--source", str(tmp_path)]) == 1
    assert "build_book: _toc.yml: no `root`" in capsys.readouterr().err
