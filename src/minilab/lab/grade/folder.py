"""A folder of notebooks, graded one by one within limits; it goes on where it was stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab import seed
from minilab.lab.exercise import Exercise, exercises_of
from minilab.lab.grade import marks as table
from minilab.lab.grade.marks import Mark
from minilab.lab.grade.submission import MISSING, Submission, load
from minilab.lab.grade.worker import CELLS, VERDICTS
from minilab.lab.progress import PASSED
from minilab.lab.workdir import FOLDER_VARIABLE
from minilab.sim.progress_bar import progress_bar

NOT_CHECKED, NO_NOTEBOOK = "not checked", "no notebook"
KEPT = ("PATH", "PYTHONPATH", "LANG", "MINILAB_DATA", "MINILAB_CACHE", "VIRTUAL_ENV", "TMPDIR",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # fmt: skip
"""Of the instructor's environment, what a submission's process gets: no token, no key."""


@dataclass(frozen=True)
class Limits:
    """Of one notebook: seconds for a cell, seconds for all of it, bytes of address space."""

    cell_seconds: float = 60.0
    seconds: float = 300.0
    memory: int = 4 << 30


def grade_folder(
    folder: Path,
    out: Path,
    labs: Path,
    *,
    lab: str | None = None,
    limits: Limits = Limits(),
    again: bool = False,
    progress: bool = True,
    setup: Sequence[str] = (),
    tell: Callable[[str], None] = print,
) -> list[Mark]:
    """Grade every notebook below ``folder`` into the CSV file ``out``; returns all marks.

    A file that ``out`` has with the same content is not run again unless ``again``. ``setup``:
    cells that run before a submission's own.

    Raises:
        InputError: no folder, no notebook in it, a table that is none, or a system without limits.
    """
    _need_limits()
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; give the one that holds the notebooks")
    paths = [p for p in sorted(folder.rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts]
    if not paths:
        raise InputError(f"{folder}: no notebook in it; a submission is a file NAME.ipynb")
    known = {} if again else _by_file(table.read(out))
    done: dict[str, list[Mark]] = {}
    for path in paths:
        name, key = path.relative_to(folder).as_posix(), _key(path, folder)
        if name in known and {mark.sha256 for mark in known[name]} == {key}:
            done[name] = known[name]
    with progress_bar("graded", len(paths), len(done), progress) as tick:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            if name in done:
                continue
            done[name] = grade_one(path, folder, labs, lab, limits, setup)
            table.write(out, [mark for some in done.values() for mark in some])
            tell(summary(name, done[name]))
            tick()
    found = [mark for some in done.values() for mark in some]
    table.write(out, found)
    return found


def _need_limits() -> None:
    if not hasattr(signal, "setitimer"):
        raise InputError("grading needs Linux, macOS or WSL: this system cannot limit a process")


def _by_file(found: Sequence[Mark]) -> dict[str, list[Mark]]:
    files: dict[str, list[Mark]] = {}
    for mark in found:
        files.setdefault(mark.file, []).append(mark)
    return files


def student_of(path: Path, folder: Path) -> str:
    """Whose it is: the folder below ``folder``, else the name before its first underscore."""
    parts = path.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else path.stem.partition("_")[0]


def _key(path: Path, folder: Path) -> str:
    digest = hashlib.sha256(student_of(path, folder).encode() + b"\n")
    digest.update(path.read_bytes())
    return digest.hexdigest()


def grade_one(
    path: Path, folder: Path, labs: Path, lab: str | None, limits: Limits, setup: Sequence[str] = ()
) -> list[Mark]:
    """The marks of one notebook, whatever is wrong with it."""
    name, student = path.relative_to(folder).as_posix(), student_of(path, folder)
    key = _key(path, folder)
    try:
        submission = load(path, labs, lab)
    except InputError as error:
        exercises = exercises_of(lab) if lab else ()
        ids = [(e.id, _part(e)) for e in exercises] or [("", "")]
        return [
            Mark(name, student, lab or "", i, part, 0, NO_NOTEBOOK, str(error), "", key)
            for i, part in ids
        ]
    told = _run(submission, student, limits, setup)
    notes = "; ".join(submission.remarks)
    found = []
    for exercise in exercises_of(submission.lab):
        verdict, said = _verdict(exercise, submission, told)
        state = submission.checks.get(exercise.id)
        note = "; ".join(part for part in (f"check {state}" if state else "", notes) if part)
        mark = int(verdict == PASSED)
        found.append(
            Mark(name, student, submission.lab, exercise.id, _part(exercise), mark, verdict, said,
                 note, key)
        )  # fmt: skip
    return found


def _part(exercise: Exercise) -> str:
    return "core" if exercise.core else "deep"


def _run(
    submission: Submission, student: str, limits: Limits, setup: Sequence[str]
) -> dict[str, Any]:
    """Run it in a process of its own; what it filed, and under "ended" how it came to its end."""
    with tempfile.TemporaryDirectory(prefix="minilab-grade-") as scratch:
        task = {
            "cells": [asdict(cell) for cell in submission.cells],
            "setup": list(setup),
            "cell_seconds": limits.cell_seconds,
            "cpu_seconds": int(2 * limits.seconds) + 1,
            "memory": limits.memory,
        }
        Path(scratch, CELLS).write_text(json.dumps(task), encoding="utf-8")
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {
            "MPLBACKEND": "Agg",
            "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR")
            or str(Path.home() / ".cache/matplotlib"),
            "HOME": scratch,
            "IPYTHONDIR": str(Path(scratch, "ipython")),
            FOLDER_VARIABLE: str(Path(scratch, "work")),
            seed.VARIABLE: student,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "minilab.lab.grade.worker", scratch],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        ended = ""
        try:
            status = process.wait(limits.seconds)
            ended = "" if status == 0 else f"its process ended ({_status(status)})"
        except subprocess.TimeoutExpired:
            ended = f"stopped at the limit of {limits.seconds:g} s"
        finally:
            _kill(process)
        told = _filed(Path(scratch, VERDICTS))
    return {**told, "ended": "" if told["done"] else ended or "it left its process early"}


def _status(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name}: out of memory or CPU time?"
    return f"status {status}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The worker and what it started, all of its session's group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _filed(path: Path) -> dict[str, Any]:
    nothing: dict[str, Any] = {"verdicts": {}, "errors": [], "cell": None, "done": False}
    try:
        return {**nothing, **json.loads(path.read_text(encoding="utf-8"))}
    except (OSError, ValueError):
        return nothing


def _verdict(exercise: Exercise, submission: Submission, told: dict[str, Any]) -> tuple[str, str]:
    """The word and the most telling line for one exercise."""
    found = told["verdicts"].get(exercise.id)
    if found is not None:
        return found["verdict"], found["reason"]
    at = next((c.number for c in submission.cells if exercise.id in c.checks), None)
    if at is None:
        return NOT_CHECKED, "the lab has no check cell for it"
    errors = dict(told["errors"])
    if at in errors and submission.checks.get(exercise.id) != MISSING:
        before = [n for n in errors if n < at]
        why = f" (before it, cell {before[-1]}: {errors[before[-1]]})" if before else ""
        return NOT_CHECKED, f"its check, cell {at}: {errors[at]}{why}"
    if told["ended"]:
        where = "" if told["cell"] is None else f" in cell {told['cell']}"
        return NOT_CHECKED, f"{told['ended']}{where}"
    return NOT_CHECKED, "its check cell is gone, and what it checks is not there"


def summary(name: str, found: Sequence[Mark]) -> str:
    """A line for people."""
    core = [mark for mark in found if mark.part == "core"]
    deep = [mark for mark in found if mark.part == "deep"]
    words = f"{name}: {sum(m.mark for m in core)} of {len(core)} core"
    if deep:
        words += f", {sum(m.mark for m in deep)} of {len(deep)} deep"
    if all(mark.verdict == NO_NOTEBOOK for mark in found):
        return f"{name}: {found[0].said}"
    notes = dict.fromkeys(f"{m.exercise}: {m.note}" for m in found if m.note.startswith("check"))
    rest = dict.fromkeys(m.note for m in found if m.note and not m.note.startswith("check"))
    return "; ".join([words, *notes, *rest])
