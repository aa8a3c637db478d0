"""What the stored notebooks check, counted: a check that quietly went away is missed here.

`make test` runs every solution through nbval. A cell counts there only if it is marked, and a
notebook only if it is found. Whoever adds or drops one changes the table below, knowingly.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from minilab.lab.build import differences

plugin = pytest.importorskip("nbval.plugin", reason="needs nbval")

ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / "solutions"
FLOAT = re.compile(r"\d\.\d{3,}")
"""Digits that another machine, or other data, may print otherwise."""


class Account(NamedTuple):
    """code: code cells. checked: those whose stored output is compared. skipped: not even run."""

    code: int
    checked: int
    skipped: int


ACCOUNTS = {
    "00_from_engine.ipynb": Account(code=27, checked=7, skipped=0),
    "01_goodput.ipynb": Account(code=41, checked=7, skipped=0),
    "02_pd_split.ipynb": Account(code=31, checked=9, skipped=0),
    "03a_prefix_cache.ipynb": Account(code=28, checked=5, skipped=0),
    "03b_kv_tiers.ipynb": Account(code=24, checked=7, skipped=0),
    "04_spec_decode.ipynb": Account(code=35, checked=7, skipped=0),
    "evidence/02_pd.ipynb": Account(code=13, checked=8, skipped=0),
    "05_quantisation.ipynb": Account(code=34, checked=6, skipped=0),
    "06_moe.ipynb": Account(code=33, checked=8, skipped=0),
    "07_selector.ipynb": Account(code=26, checked=5, skipped=0),
    "08_on_call.ipynb": Account(code=12, checked=2, skipped=0),
    "evidence/03_prefix.ipynb": Account(code=9, checked=7, skipped=0),
    "evidence/03_routing.ipynb": Account(code=17, checked=9, skipped=0),
    "evidence/06_moe.ipynb": Account(code=17, checked=15, skipped=0),
    "evidence/05_quant.ipynb": Account(code=10, checked=9, skipped=0),
    "evidence/04_spec.ipynb": Account(code=11, checked=8, skipped=0),
}


def marked(cell: Any, kind: str) -> bool:
    """Whether nbval itself sees the mark on a cell: "check" (of its output) or "skip"."""
    marks = dict(plugin.find_metadata_tags(cell.metadata))
    marks |= dict(plugin.find_comment_markers(cell.source))
    return bool(marks.get(kind))


def notebooks() -> dict[str, Any]:
    """Every notebook that nbval runs, by its path below solutions/."""
    return {
        path.relative_to(SOLUTIONS).as_posix(): nbformat.read(path, as_version=4)
        for path in sorted(SOLUTIONS.rglob("*.ipynb"))
        if ".ipynb_checkpoints" not in path.parts
    }


def account(notebook: Any) -> Account:
    """Count the cells of a notebook."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return Account(len(code), *(sum(marked(c, kind) for c in code) for kind in ("check", "skip")))


def test_the_books_balance() -> None:
    """Number of notebooks, of checked cells and of skipped ones."""
    assert {name: account(notebook) for name, notebook in notebooks().items()} == ACCOUNTS


def test_nbval_finds_the_same_cells() -> None:
    """The table would be worth nothing if nbval read other files than it counts."""
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env"]
    command += ["--collect-only", "-q", "-p", "no:cacheprovider", str(SOLUTIONS)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    collected = re.findall(r"^(?:solutions/)?(\S+\.ipynb)::Cell \d+$", found.stdout, re.MULTILINE)
    assert {name: collected.count(name) for name in set(collected)} == {
        name: said.code - said.skipped for name, said in ACCOUNTS.items()
    }, found.stdout[-1500:]


def test_what_is_compared_is_there_and_holds_elsewhere() -> None:
    """A checked cell without a stored output checks nothing; long digits fail on another CPU."""
    for name, notebook in notebooks().items():
        for cell in notebook.cells:
            if cell.cell_type != "code" or not marked(cell, "check"):
                continue
            texts = [output.get("text", "") for output in cell.outputs]
            assert "".join(texts).strip(), f"{name}: {cell.id} has no output to compare"
            assert not FLOAT.search("".join(texts)), f"{name}: {cell.id}"
            assert "not yet" not in "".join(texts), f"{name}: {cell.id} stores a failure"


def test_every_exercise_is_checked() -> None:
    """An exercise whose check is not compared may fail in the solution, and nobody sees it."""
    for name, notebook in notebooks().items():
        calls = {
            exercise: marked(cell, "check")
            for cell in notebook.cells
            for exercise in re.findall(r'lab\.check\("(\d+[a-z]?\.\w+)"', cell.source)
        }
        assert all(calls.values()), (
            f"{name}: {[one for one, checked in calls.items() if not checked]}"
        )


def test_the_labs_are_those_of_the_solutions() -> None:
    """A lab edited by hand, or left behind by its solution, is another course."""
    assert differences(ROOT) == [], "run `make labs`"


def test_a_dropped_mark_changes_the_account() -> None:
    """Planted: a misspelt mark is a comment like any other, and compares nothing."""
    notebook = next(iter(notebooks().values()))
    before = account(notebook).checked
    cell = next(cell for cell in notebook.cells if marked(cell, "check"))
    cell.source = cell.source.replace("NBVAL_CHECK_OUTPUT", "NBVAL_CHECK_OUPUT")
    assert account(notebook).checked == before - 1
