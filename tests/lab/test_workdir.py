"""Where a learner's files go: never beside the sources, never over another's, never half."""

from __future__ import annotations

from pathlib import Path

import pytest

from minilab.lab.workdir import work_folder, write_whole


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINILAB_WORK")


@pytest.mark.parametrize(
    ("here", "goes_to"),
    [
        ("", "work"),
        ("work", "work"),
        ("labs", "work"),
        ("book/ch1", "work"),
        ("solutions", "work/solutions"),
        ("solutions/evidence", "work/solutions"),
    ],
)
def test_in_a_checkout_it_is_the_checkouts_work(here: str, goes_to: str, tmp_path: Path) -> None:
    (tmp_path / here).mkdir(parents=True, exist_ok=True)
    (tmp_path / "repo.toml").write_text("")
    assert work_folder(tmp_path / here) == tmp_path / goes_to


def test_without_a_checkout_it_is_beside_the_notebook(tmp_path: Path) -> None:
    assert work_folder(tmp_path) == tmp_path / "work"
    (tmp_path / "work").mkdir()
    assert work_folder(tmp_path / "work") == tmp_path / "work"
    (tmp_path / "solutions").mkdir()  # a folder of that name means nothing outside a checkout
    assert work_folder(tmp_path / "solutions") == tmp_path / "solutions" / "work"


def test_the_variable_decides_where_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINILAB_WORK", str(tmp_path / "mine"))
    assert work_folder() == tmp_path / "mine"


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
