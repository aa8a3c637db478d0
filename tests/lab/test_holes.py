"""Solution regions: each becomes a hole, and a wrong marker is one line instead of a leak."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minilab.facts.errors import InputError
from minilab.lab.build import build, main
from minilab.lab.notebook_text import with_holes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "solutions").mkdir()
    return tmp_path


BEGIN, END = "# BEGIN SOLUTION 90.1", "# END SOLUTION"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (f"x = 1\n{BEGIN}\ny = 2", "line 2: BEGIN SOLUTION without an END"),
        (f"x = 1\n{END}", "line 2: END SOLUTION without a BEGIN"),
        (f"{BEGIN}\n{BEGIN}\n{END}\n{END}", "line 2: BEGIN SOLUTION inside the region of line 1"),
        (f"# BEGIN SOLUTION\ny = 2\n{END}", "names no exercise"),
        (f"# begin solution 90.1\ny = 2\n{END}", "is no marker"),
        (f"### BEGIN SOLUTION\ny = 2\n{END}", "is no marker"),
        (f"y = 2  {BEGIN}\n{END}", "is no marker"),
        (f"{BEGIN}: the sum\n{END}", "is no marker"),
        (f"{BEGIN}\ny = 2\n# END_SOLUTION", "is no marker"),
        (f"# BEGIN SOLUTION 2.1\ny = 2\n{END}", "an exercise of lab 02"),
    ],
)
def test_a_wrong_marker_is_one_line_with_cell_and_line(
    source: str, says: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = new_notebook(cells=[new_code_cell("1", id="one"), new_code_cell(source, id="bad")])
    nbformat.write(bad, root / "solutions" / "90_demo.ipynb")
    assert main(["--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert says in error and "90_demo.ipynb: cell 2 (bad)" in error
    assert error.count("\n") == 1
    assert not (root / "labs").exists()


def test_a_marker_names_its_exercise_before_the_heading_does() -> None:
    source = f"{BEGIN}\nx = 1\n{END}\n# BEGIN SOLUTION\ny = 2\n{END}"
    lab = with_holes(source, "90.2", "here")
    assert lab.count('("Exercise 90.1")') == lab.count('("Exercise 90.2")') == 1


def test_a_marker_in_prose_would_leak_and_is_refused(root: Path) -> None:
    bad = new_notebook(cells=[new_markdown_cell(f"{BEGIN}\nbecause\n{END}", id="prose")])
    nbformat.write(bad, root / "solutions" / "90_demo.ipynb")
    with pytest.raises(InputError, match="solution-only"):
        build(root)


LINES = st.lists(st.sampled_from(["x = 1", "", "    y", "# note", "...", "\tz"]), max_size=4)


@given(st.lists(st.tuples(LINES, st.sampled_from(["", "    ", "\t"]), LINES), max_size=4), LINES)
def test_any_number_of_regions_keeps_all_other_lines(
    regions: list[tuple[list[str], str, list[str]]], tail: list[str]
) -> None:
    source: list[str] = []
    wanted: list[str] = []
    for before, indent, inside in regions:
        source += [*before, f"{indent}{BEGIN}", *inside, f"{indent}{END}"]
        wanted += [*before, f"{indent}...", f'{indent}raise NotImplementedError("Exercise 90.1")']
    lab = with_holes("\n".join([*source, *tail]), "", "here")
    assert lab == "\n".join([*wanted, *tail])
    assert with_holes(lab, "", "here") == lab  # a lab is its own lab
