"""Run the cells of one submission in this process, and file each verdict as it comes.

Started by ``folder`` in a session of its own: ``python -m minilab.lab.grade.worker FOLDER`` reads
FOLDER/cells.json and writes FOLDER/verdicts.json after every cell, so that what a killed process
had done still counts. A cell that takes too long is interrupted, the next one still runs.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

CELLS, VERDICTS = "cells.json", "verdicts.json"
AGAIN_S = 1.0
"""Seconds after which a cell that swallowed the interruption is interrupted again."""


class OutOfTimeError(BaseException):
    """A cell ran into its limit. Not an Exception: a bare ``except Exception`` must not keep it."""


def main(folder: Path) -> None:
    """Run everything; what the cells print goes nowhere."""
    task = json.loads((folder / CELLS).read_text(encoding="utf-8"))
    _limit(task["memory"], task["cpu_seconds"])
    sys.path.insert(0, "")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    shell = importlib.import_module("IPython.core.interactiveshell").InteractiveShell.instance()
    told: dict[str, Any] = {"verdicts": {}, "errors": [], "cell": None, "done": False}
    for setup in task["setup"]:
        shell.run_cell(setup, store_history=False)
    for cell in task["cells"]:
        told["cell"] = cell["number"]
        _file(folder, told)
        error = _run(shell, cell, task["cell_seconds"], told["verdicts"])
        if error:
            told["errors"].append([cell["number"], error])
    told["done"] = True
    _file(folder, told)


def _run(shell: Any, cell: dict[str, Any], seconds: float, verdicts: dict[str, Any]) -> str:
    """Run one cell; the error it raised in a line, or nothing."""
    from minilab import lab
    from minilab.lab.check import check
    from minilab.lab.progress import session

    if cell["checks"]:
        shell.user_ns["lab"] = lab
        setattr(lab, "check", check)  # noqa: B010 - a name that a cell before may have set
        for exercise_id in cell["checks"]:
            session().results.pop(exercise_id, None)
    with interrupted_after(seconds):
        result = shell.run_cell(cell["source"], store_history=False, silent=True)
    for exercise_id in cell["checks"]:
        found = session().results.get(exercise_id)
        if found is not None:
            verdicts[exercise_id] = {"verdict": found.verdict, "reason": found.reason}
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        return ""
    if isinstance(error, OutOfTimeError):
        return f"stopped after {seconds:g} s"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the main thread after so long, and again until it is heard."""

    def late(_: int, __: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _limit(memory: int, cpu_seconds: int) -> None:
    """Address space and CPU time of this process and of each that it starts."""
    resource = importlib.import_module("resource")
    for kind, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def _file(folder: Path, told: dict[str, Any]) -> None:
    temporary = folder / f".{VERDICTS}"
    temporary.write_text(json.dumps(told), encoding="utf-8")
    os.replace(temporary, folder / VERDICTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # a thread of a check that never ends must not keep the process
