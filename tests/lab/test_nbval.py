"""Stored outputs are compared: a planted wrong verdict must fail where the right one holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

pytest.importorskip("nbval", reason="needs nbval")

CHECK = '# NBVAL_CHECK_OUTPUT\nlab.check("90.3", "queue time")'
FIGURE = """\
import matplotlib.pyplot as plt
fig, ax = plt.subplots()
lab.show(fig, alt="An empty pair of axes, for a test")"""


def test_a_planted_wrong_output_fails_and_the_right_one_passes(
    tmp_path: Path, install_demo: str
) -> None:
    cells = [new_code_cell(source) for source in (install_demo, CHECK, CHECK, FIGURE)]
    for number, cell in enumerate(cells, 1):
        cell.execution_count = number  # nbval calls an output without one "unrun"
    for cell, verdict in ((cells[1], "passed"), (cells[2], "not yet")):
        cell.outputs = [new_output("stream", name="stdout", text=f"Exercise 90.3: {verdict}\n")]
    path = tmp_path / "90_demo.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-q",
         "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path), str(path)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 1, found.stdout
    assert "1 failed, 3 passed" in found.stdout
    assert "FAILED 90_demo.ipynb::Cell 2" in found.stdout and "mismatch" in found.stdout
