"""The check without a browser: each kind of planted fault is found; a sound site has none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import crawl
from site_html import Site, css_urls, is_foreign, means_nothing

SOUND = {
    "index.html": '<h1 id="top">A</h1><a href="sub/b.html#there">b</a><a href="#top">up</a>'
    '<link rel="stylesheet" href="_static/a.css?v=1"><a href="https://example.org/">out</a>'
    '<a href="mailto:a@example.org">mail</a><a href="sub/">folder</a>',
    "sub/b.html": '<p id="there">B</p><a href="../index.html">a</a><img src="../_static/p.png"'
    ' alt="A knee at five requests a second"><img src="data:image/png;base64,AA" alt="A line">',
    "sub/index.html": '<meta http-equiv="refresh" content="0; url=b.html"><h1>x</h1>',
    "_static/a.css": "a{background:url('p.png')} /* url(gone.png) */ b{background:url(data:x)}",
    "_static/p.png": "png",
}


def write_site(folder: Path, **changes: str) -> Path:
    """The sound site with `name=text` appended to some files (name without .html, / as __)."""
    for name, text in SOUND.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        key = name.removesuffix(".html").replace("/", "__").replace(".", "_")
        path.write_text(text + changes.get(key, ""), encoding="utf-8")
    return folder


@pytest.mark.parametrize("base", ["/", "/name/"])
def test_a_sound_site_has_no_findings(tmp_path: Path, base: str) -> None:
    assert Site(write_site(tmp_path), base).findings() == []


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        ("dead-link", '<a href="gone.html">x</a>'),
        ("dead-link", '<a href="../above.html">x</a>'),
        ("dead-link", '<a href="/index.html">right at the root, dead under /name/</a>'),
        ("dead-anchor", '<a href="sub/b.html#nowhere">x</a>'),
        ("dead-anchor", '<a href="#nowhere">x</a>'),
        ("dead-asset", '<script src="gone.js"></script>'),
        ("dead-asset", '<img alt="A line that falls" src="gone.png">'),
        ("dead-asset", '<link rel="icon" href="gone.svg">'),
        ("dead-asset", '<p style="background:url(gone.png)">x</p>'),
        ("foreign-request", '<script src="https://cdn.example.org/x.js"></script>'),
        ("foreign-request", '<script src="//cdn.example.org/x.js"></script>'),
        ("foreign-request", '<link rel="stylesheet" href="https://fonts.example.org/css">'),
        ("foreign-request", '<img alt="Open in a notebook" src="https://img.example.org/b.svg">'),
        ("foreign-request", '<img alt="A line" src="_static/p.png" srcset="https://e.org/p 2x">'),
        ("foreign-request", "<style>@import 'https://fonts.example.org/css';</style>"),
        ("foreign-request", '<iframe title="v" src="https://video.example.org"></iframe>'),
        ("no-alt", '<img src="_static/p.png">'),
        ("no-alt", '<img src="_static/p.png" alt="">'),
        ("no-alt", '<img src="_static/p.png" alt="../_images/3f2a.png">'),
        ("no-alt", '<svg role="img"><path d="M0 0"/></svg>'),
        ("no-alt", '<svg><path d="M0 0"/></svg>'),
        ("unstamped-link", '<a href="https://colab.research.google.com/github/OWNER/x">x</a>'),
        ("unstamped-link", '<a href="https://kaggle.com/welcome?src=https://e.org/OWNER/x">x</a>'),
        ("unstamped-link", '<a href="https://OWNER.github.io/x">x</a>'),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, kind: str, planted: str) -> None:
    found = Site(write_site(tmp_path, index=planted), "/name/").findings()
    assert [(one.page, one.kind) for one in found] == [("index.html", kind)]


@pytest.mark.parametrize("css", ["@import url(https://e.org/a.css);", "a{b:url('gone.woff2')}"])
def test_a_fault_in_a_style_sheet_is_found_on_its_page(tmp_path: Path, css: str) -> None:
    found = Site(write_site(tmp_path, _static__a_css=css)).findings()
    assert [one.page for one in found] == ["index.html"]
    assert "a.css" in found[0].detail


def test_a_page_over_the_limit_is_found(tmp_path: Path) -> None:
    folder = write_site(tmp_path, index='<script src="_static/big.js"></script>')
    (folder / "_static" / "big.js").write_bytes(random.Random(0).randbytes(1_000_000))
    (found,) = Site(folder).findings()
    assert (found.page, found.kind) == ("index.html", "too-heavy")


def test_weight_is_that_over_the_wire(tmp_path: Path) -> None:
    """Text compresses: a megabyte of the same line is no reason to complain."""
    folder = write_site(tmp_path, index="the same line\n" * 100_000)
    assert Site(folder).weight("index.html") < 20_000


def test_a_decorative_picture_says_so() -> None:
    assert means_nothing(None, "a.png")
    assert means_nothing("  ", "a.png")
    assert means_nothing("_images/a.png", "x")
    assert not means_nothing("A .png file grows", "a.png")


def test_style_sheets_and_hosts_are_read_right() -> None:
    assert css_urls("@font-face{src:url( 'a.woff2' )} /* url(b) */ @import \"c.css\";") == [
        "a.woff2",
        "c.css",
    ]
    assert is_foreign("//host/x")
    assert is_foreign("https://host/x")
    assert not is_foreign("x/y.js?a=https://host")


def test_the_command_fails_on_a_fault_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_site(tmp_path)
    assert crawl.main([str(folder), "--no-browser"]) == 0
    assert "3 pages read, 0 findings" in capsys.readouterr().out
    write_site(tmp_path, index='<a href="gone.html">x</a>')
    assert crawl.main([str(folder), "--no-browser"]) == 1
    assert "index.html: dead-link: gone.html" in capsys.readouterr().out


def test_no_site_is_not_a_sound_site(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        crawl.main([str(tmp_path), "--no-browser"])
