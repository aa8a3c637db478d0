"""Check a learner's notebook: run work/NN_*.ipynb and say which exercises pass, and why not.

``python -m minilab.lab.check_notebook 01``. The notebook runs in a kernel of its own, cell by cell;
an unsolved or failing cell never sinks the next. The verdicts are those that ``lab.check`` recorded
in that kernel, not what a cell printed. The notebook, its outputs and the learner's predictions
stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.build import read_notebook
from minilab.lab.exercise import Exercise, exercises_of, lab_name
from minilab.lab.notebook_text import need
from minilab.lab.progress import NOT_DONE, PASSED
from minilab.lab.workdir import FOLDER_VARIABLE, relative, work_folder

SECONDS = 120
_ASK = "from minilab.lab.progress import session\nprint(session().results_json())"


@dataclass
class Run:
    """What running a notebook gave. errors: by cell index, (exception name, message)."""

    sources: list[str] = field(default_factory=list)
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all core exercises pass, 1 when some do not, 2 when there is nothing to check."""
    parser = argparse.ArgumentParser(prog="python -m minilab.lab.check_notebook")
    parser.add_argument("lab", help='the number of the lab, as in "01"')
    parser.add_argument("--seconds", type=int, default=SECONDS, help="time limit for each cell")
    given = parser.parse_args(argv)
    try:
        lab = lab_name(given.lab)
        path, exercises = notebook_of(lab), exercises_of(lab)
        if not exercises:
            raise InputError(f"lab {lab}: this package has no exercises for it; check another lab")
        started = time.monotonic()
        run = run_notebook(path, given.seconds)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for line in summary(path, exercises, run, time.monotonic() - started):
        print(line)
    core = [e for e in exercises if e.core]
    return 0 if all(_verdict(e, run)[0] == PASSED for e in core) else 1


def notebook_of(lab: str) -> Path:
    """The learner's copy of a lab; InputError where there is none, or more than one."""
    found = sorted(work_folder().glob(f"{lab}_*.ipynb"))
    if not found:
        raise InputError(f"no work/{lab}_*.ipynb; run make start LAB={lab} first")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"lab {lab}: {len(found)} notebooks ({names}); keep one in work/")
    return found[0]


def run_notebook(path: Path, seconds: int = SECONDS) -> Run:
    """Run all cells in a fresh kernel, each for at most ``seconds``, keeping what they raise."""
    nbclient = need("nbclient")
    need("ipykernel")
    notebook = read_notebook(path, relative(path))
    notebook.cells.append(need("nbformat").v4.new_code_cell(_ASK))
    client = nbclient.NotebookClient(
        notebook,
        timeout=seconds,
        interrupt_on_timeout=True,
        allow_errors=True,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # its warnings are not a learner's
        resources={"metadata": {"path": str(path.parent)}},
    )
    run = Run([cell.source if cell.cell_type == "code" else "" for cell in notebook.cells[:-1]])
    client.log.disabled = True  # it logs each interrupted cell; the summary says it in one line
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, FOLDER_VARIABLE: scratch}
        with client.setup_kernel(env=environment):
            _run_cells(client, notebook, run)
    return run


def _run_cells(client: Any, notebook: Any, run: Run) -> None:
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        try:
            client.execute_cell(cell, index)
        except need("nbclient.exceptions").DeadKernelError:
            run.errors[index] = ("DeadKernel", "the kernel died here: out of memory?")
            return
        for output in cell.outputs:
            if output.output_type == "error":
                run.errors[index] = (output.ename, " ".join(output.evalue.split()))
    printed = [o.text for o in notebook.cells[-1].outputs if o.output_type == "stream"]
    if printed:
        run.results = {result["id"]: result for result in json.loads(printed[-1])}


def summary(path: Path, exercises: Sequence[Exercise], run: Run, seconds: float) -> list[str]:
    """ "3 of 4 core exercises pass", then an exercise a line, then other cells that failed."""
    core = [e for e in exercises if e.core]
    passed = sum(_verdict(e, run)[0] == PASSED for e in core)
    lines = [
        f"{passed} of {len(core)} core exercises pass ({relative(path)}, {seconds:.0f} s)",
    ]
    for exercise in (*core, *(e for e in exercises if not e.core)):
        verdict, why = _verdict(exercise, run)
        deep = "" if exercise.core else " (deep)"
        lines.append(f"  {exercise.id:<5} {verdict:<13} {exercise.title}{deep}")
        if why:
            lines.append(f"        {why}")
    for index, (name, message) in run.errors.items():
        if not _is_hole(name, message):
            lines.append(f"  cell {index}: {_error(name, message)}")
    return lines


def _verdict(exercise: Exercise, run: Run) -> tuple[str, str]:
    """The word and the reason for one exercise."""
    result = run.results.get(exercise.id)
    if result is not None:
        return result["verdict"], result["reason"]
    if any(_is_hole(n, m) and m == f"Exercise {exercise.id}" for n, m in run.errors.values()):
        return NOT_DONE, ""
    call = re.compile(rf"""check\(\s*["']{re.escape(exercise.id)}["']""")
    cells = [index for index, source in enumerate(run.sources) if call.search(source)]
    if not cells:
        return "not checked", f'no cell calls lab.check("{exercise.id}", ...): copy it from labs/'
    for index in cells:
        if index in run.errors:
            return "not checked", f"its check, cell {index}: {_error(*run.errors[index])}"
    return "not checked", f"its check, cell {cells[0]}, did not run"


def _is_hole(name: str, message: str) -> bool:
    return name == "NotImplementedError" and message.startswith("Exercise ")


def _error(name: str, message: str) -> str:
    if name == "KeyboardInterrupt":
        return "stopped at the time limit"
    return f"{name}: {message}" if message else name


if __name__ == "__main__":
    sys.exit(main())
