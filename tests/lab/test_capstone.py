"""Capstones: a workload per name, a prediction before the run, and model reports that say what the
pages around them say.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from minilab.facts.errors import InputError
from minilab.lab.capstone import LETTERS, Workbook, anchors, direction
from minilab.lab.capstone.directions import MODEL
from minilab.lab.capstone.notebooks import NAMES, generated

ROOT = Path(__file__).parents[2]


@pytest.fixture
def book(tmp_path: Path) -> Workbook:
    chosen = direction("D", "ada", requests=60)
    return Workbook(replace(chosen, points=((500, 0.3), (4000, 0.3))), tmp_path / "book")


@pytest.mark.parametrize("letter", LETTERS)
def test_a_name_decides_the_workload(letter: str) -> None:
    def hashes(name: str) -> list[str]:
        chosen = direction(letter, name, 40)
        return [chosen.work(point).hash() for point in chosen.points]

    assert hashes("ada") == hashes("ada")
    assert set(hashes("ada")).isdisjoint(hashes("bob"))
    assert set(hashes(MODEL)).isdisjoint(hashes(""))


@pytest.mark.parametrize("letter", LETTERS)
def test_both_sides_fit_and_are_checked(letter: str) -> None:
    chosen = direction(letter, "ada")
    assert len(chosen.points) == len(set(chosen.points)) == 9
    for side in chosen.sides:
        chosen.experiment(side, chosen.points[-1]).check()
    with pytest.raises(InputError, match="there are A, B, C, D"):
        direction("E")


def test_predict_run_report(book: Workbook, capsys: pytest.CaptureFixture[str]) -> None:
    short, long = book.direction.points
    book.predict("bf16 KV", long, {"attainment": (0.0, 0.5)}, "the pool is full")
    book.run(progress=False)
    before = {path.name: path.read_bytes() for path in book.folder.glob("*.jsonl")}
    assert len(before) == 4
    book.run(progress=False)  # nothing is made twice
    assert before == {path.name: path.read_bytes() for path in book.folder.glob("*.jsonl")}
    page = book.report("FP8 wins where the pool is full.").read_text(encoding="utf-8")
    assert "the pool is full" in page and "FP8 wins where" in page
    assert re.search(r"of 1 ranges held|of \d ranges held", page)
    assert "prompt tokens 4000, goodput: wins" in page
    assert capsys.readouterr().out.startswith("Report: ")
    with pytest.raises(InputError, match="has been run"):
        book.predict("bf16 KV", short, {"attainment": (0.0, 0.5)}, "")


def test_a_prediction_needs_a_range_of_something(book: Workbook) -> None:
    point = book.direction.points[0]
    for ranges, why in (
        ({}, "no range"),
        ({"attainment": (0.9, 0.1)}, "not below"),
        ({"speed": (1.0, 2.0)}, "unknown number"),
    ):
        with pytest.raises(InputError, match=why):
            book.predict("bf16 KV", point, ranges, "")
    assert not list(book.folder.glob("*")) if book.folder.exists() else True
    with pytest.raises(InputError, match="unknown side"):
        book.predict("split", point, {"attainment": (0.1, 0.9)}, "")
    with pytest.raises(InputError, match="the direction has"):
        book.predict("bf16 KV", (1, 1), {"attainment": (0.1, 0.9)}, "")
    with pytest.raises(InputError, match="call run"):
        book.report("")
    book.predict("fp8 KV", point, {"attainment": (0.1, 0.9)}, "")
    with pytest.raises(InputError, match="holds a prediction already"):
        book.predict("fp8 KV", point, {"attainment": (0.2, 0.9)}, "")


def test_the_notebooks_are_the_generated_ones() -> None:
    for path, text in generated(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name}: run python -m minilab.lab.capstone.notebooks"
        )


def run_notebook(letter: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MINILAB_WORK", str(folder))
    monkeypatch.setenv("MINILAB_STUDENT", "test")
    cells = json.loads((ROOT / "capstones" / f"{NAMES[letter]}.ipynb").read_text())["cells"]
    space: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), space)
    return (folder / f"capstone_{letter.lower()}" / "report.html").read_text(encoding="utf-8")


def check_notebook(page: str) -> None:
    assert "What would refute me." in page and "of 1 ranges held" in page
    assert "Regime map of goodput per GPU" in page


def test_a_starting_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_notebook(run_notebook("D", tmp_path, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["A", "B", "C"])
def test_every_starting_notebook_runs(
    letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_notebook(run_notebook(letter, tmp_path, monkeypatch))


@pytest.mark.slow
def test_the_model_reports_say_what_their_pages_say() -> None:
    """The prose in the margin takes counts from the reports; these are the words around them."""
    good = {letter: anchors.good(letter) for letter in LETTERS}
    weak = {letter: anchors.feature_only(letter) for letter in LETTERS}
    assert good["A"].count("loses", "split") >= 1
    assert good["A"].count("loses", "whole, large chunks") >= 5  # "at most points"
    assert weak["A"].count("wins") == 1
    assert good["B"].count("wins") >= 1 and good["B"].count("loses") >= 1
    assert weak["B"].findings[0].verdict == "no difference"
    assert any(f.verdict == "wins" and "tpot" in f.what for f in weak["B"].findings)
    assert good["C"].count("loses", "prefix aware") >= 1 and weak["C"].count("wins") == 1
    assert good["D"].count("loses") == 0 and weak["D"].count("wins") == 1
    assert good["D"].count("no difference") >= 3
    for letter in LETTERS:
        assert "No prediction was filed before these runs" in weak[letter].html
        assert "Regime map" in good[letter].html and "Regime map" not in weak[letter].html
        assert "ranges held" in good[letter].html
        assert "/tmp" not in good[letter].html + weak[letter].html
