"""make check: runs a learner's copy, counts, and lets no unsolved or broken cell sink the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minilab.lab.check_notebook import main

GOOD = "def attainment(ttft, slo):\n    return sum(v <= slo for v in ttft) / len(ttft)"
HOLE = 'def attainment(ttft, slo):\n    ...\n    raise NotImplementedError("Exercise 90.1")'
CHECKS = {
    "90.1": 'lab.check("90.1", attainment)',
    "90.2": "import numpy as np\nlab.check('90.2', lambda gaps: np.percentile(gaps, 99))",
    "90.3": 'signal = "queue time"\nlab.check("90.3", signal)',
}


@pytest.fixture
def write(tmp_path: Path, install_demo: str):  # type: ignore[no-untyped-def]
    def written(*cells: str, name: str = "90_demo.ipynb") -> Path:
        (tmp_path / "work").mkdir(exist_ok=True)
        notebook = new_notebook(cells=[new_code_cell(s) for s in (install_demo, *cells)])
        notebook.cells.insert(1, new_markdown_cell("# Lab 90"))
        path = tmp_path / "work" / name
        nbformat.write(notebook, path)
        return path

    return written


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["90", *arguments])
    captured = capsys.readouterr()
    assert not (captured.out and captured.err)  # a count, or one line on why there is none
    return code, captured.out + captured.err


def test_a_solved_notebook_passes_and_stays_as_it_was(write, capsys) -> None:  # type: ignore[no-untyped-def]
    path = write(
        GOOD, *CHECKS.values(), 'lab.predict("90.a", 1, 0, 2, 0.8)\nlab.outcome("90.a", 1)'
    )
    before = path.read_bytes()
    code, out = run(capsys)
    assert code == 0, out
    assert out.startswith("3 of 3 core exercises pass (")
    assert "90.D1 not checked" in out and "(deep)" in out  # optional, so no reason to fail
    assert "cell " not in out.replace('no cell calls lab.check("90.D1"', "")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["90_demo.ipynb"]  # no prediction filed


def test_unsolved_and_failing_cells_do_not_sink_the_next(write, capsys) -> None:  # type: ignore[no-untyped-def]
    write(
        HOLE,
        CHECKS["90.1"],
        '...\nraise NotImplementedError("Exercise 90.2")\nlab.check("90.2", p99)',
        "1 / 0",
        CHECKS["90.3"],
    )
    code, out = run(capsys)
    assert code == 1
    assert out.startswith("1 of 3 core exercises pass (")
    lines = [line.strip() for line in out.splitlines()]
    for start in ("90.1  not done yet", "90.2  not done yet", "90.3  passed"):
        assert any(line.startswith(start) for line in lines), out
    assert "cell 5: ZeroDivisionError: division by zero" in out
    assert out.count("NotImplementedError") == 0


def test_it_says_why_an_exercise_does_not_pass(write, capsys) -> None:  # type: ignore[no-untyped-def]
    write(
        "def attainment(ttft, slo):\n    return sum(v <= slo for v in ttft)",
        CHECKS["90.1"],
        'lab.check("90.2", p100)',
    )
    code, out = run(capsys)
    assert code == 1 and out.startswith("0 of 3")
    assert "a count of good requests, not their share" in out
    assert "90.2  not checked" in out and "NameError: name 'p100' is not defined" in out
    assert 'no cell calls lab.check("90.3", ...): copy it from labs/' in out


def test_a_printed_verdict_is_not_a_verdict(write, capsys) -> None:  # type: ignore[no-untyped-def]
    write('print("Exercise 90.1: passed")', "lab.check = lambda *_: print('passed')",
          CHECKS["90.3"])  # fmt: skip
    code, out = run(capsys)
    assert code == 1 and out.startswith("0 of 3")


def test_a_cell_that_never_ends_and_a_kernel_that_dies(write, capsys) -> None:  # type: ignore[no-untyped-def]
    write("while True:\n    pass", CHECKS["90.3"], "import os\nos._exit(9)", GOOD, CHECKS["90.1"])
    code, out = run(capsys, "--seconds", "2")
    assert code == 1
    assert "cell 2: stopped at the time limit" in out
    assert "the kernel died here" in out and "Traceback" not in out


@pytest.mark.parametrize("argument", ["1", "01"])
def test_without_a_copy_it_says_how_to_get_one(argument: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minilab.lab.check_notebook", argument]
    environment = {**os.environ, "MINILAB_WORK": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr == "no work/01_*.ipynb; run make start LAB=01 first\n"


def test_two_copies_a_broken_one_and_an_unknown_lab(write, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = write(GOOD)
    write(GOOD, name="90_old.ipynb")
    assert run(capsys)[0] == 2
    assert main(["ninety"]) == 2
    assert "number" in capsys.readouterr().err
    (tmp_path / "work" / "90_old.ipynb").unlink()
    path.write_text(json.dumps({"cells": 3}))
    code, out = run(capsys)
    assert code == 2 and "no valid notebook" in out and out.count("\n") == 1
    (tmp_path / "work" / "89_none.ipynb").write_text("{}")
    assert main(["89"]) == 2
    assert "no exercises" in capsys.readouterr().err
