"""Submission: a learner's notebook beside its lab, with the lab's own check cells in it.

A check cell is a code cell of the lab that calls ``lab.check``. It is found again by its id, in
the submission too: one with another text is an edited check. Whatever became of it there, the
lab's own text is what runs, so that an edit changes no mark and is still noticed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.build import read_notebook
from minilab.lab.exercise import exercises_of, lab_of

_CHECK = re.compile(r"""\blab\.check\(\s*["'](\d+[a-z]?\.\w+)["']""")
_NUMBER = re.compile(r"(?:^|[^0-9a-z])(\d\d[a-z]?)_", re.IGNORECASE)
_OFF_LIMITS = ("minilab.lab.check", "minilab.lab.progress", "minilab.lab.exercise",
               "minilab.lab.attempt", "minilab.lab.compare")  # fmt: skip
MAX_BYTES = 64 << 20

EDITED, MISSING = "edited", "missing"


@dataclass(frozen=True)
class Cell:
    """What is run. ``checks``: ids of the exercises that it checks; none for a learner's cell."""

    number: int
    source: str
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submission:
    """The cells to run, in order, and what was found on the way.

    ``checks``: EDITED or MISSING by exercise id; ``remarks``: what an instructor should look at.
    """

    lab: str
    cells: tuple[Cell, ...]
    checks: dict[str, str]
    remarks: tuple[str, ...]


def ids_checked(source: str) -> tuple[str, ...]:
    """The exercises that a cell checks."""
    return tuple(_CHECK.findall(source))


def lab_notebook_of(labs: Path, lab: str) -> Path:
    """The file of a lab.

    Raises:
        InputError: none, or more than one.
    """
    found = sorted(labs.glob(f"{lab}_*.ipynb"))
    if len(found) != 1:
        raise InputError(
            f"lab {lab}: {len(found)} notebooks in {labs.name}/; one is needed: grade in the "
            "checkout, or name its labs with --labs"
        )
    return found[0]


def load(path: Path, labs: Path, lab: str | None = None) -> Submission:
    """Read a submission; ``lab`` is told by the checks in it or by its name if not given.

    Raises:
        InputError: no notebook, or one of no lab.
    """
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path.name}: over {MAX_BYTES >> 20} MiB; clear its outputs first")
    notebook = read_notebook(path, path.name)
    lab = lab or guess_lab(path, [str(c.source) for c in notebook.cells if c.cell_type == "code"])
    if not exercises_of(lab):
        raise InputError(f"{path.name}: lab {lab} has no exercises; name another with --lab")
    own = lab_notebook_of(labs, lab)
    return beside(notebook, read_notebook(own, own.name), lab)


def guess_lab(path: Path, sources: list[str]) -> str:
    """The lab that most checks of a notebook belong to, else the one its name begins with.

    Raises:
        InputError: neither tells.
    """
    counted = Counter(lab_of(found) for source in sources for found in ids_checked(source))
    if counted:
        return counted.most_common(1)[0][0]
    match = _NUMBER.search(path.name)
    if match is None:
        raise InputError(f"{path.name}: of which lab? It checks no exercise; name it with --lab")
    return match[1].lower()


def beside(notebook: Any, own: Any, lab: str) -> Submission:
    """The submission ``notebook`` with the check cells of the lab ``own``."""
    given = {str(c.id): str(c.source) for c in own.cells if c.cell_type == "code"}
    wanted = {key: source for key, source in given.items() if ids_checked(source)}
    changed: dict[str, str] = {}
    remarks: list[str] = []
    cells = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        source, key = str(cell.source), str(cell.id)
        if key in wanted:
            right = wanted.pop(key)
            if source.strip() != right.strip():
                changed |= dict.fromkeys(ids_checked(right), EDITED)
            cells.append(Cell(number, right, ids_checked(right)))
        else:
            if source.strip() != given.get(key, "").strip():  # a lab may show its own parts
                remarks += [f"cell {number} {what}" for what in touches(source)]
            cells.append(Cell(number, source))
    for right in wanted.values():  # of cells that are gone; their functions may still be there
        changed |= dict.fromkeys(ids_checked(right), MISSING)
        cells.append(Cell(len(notebook.cells), right, ids_checked(right)))
    return Submission(lab, tuple(cells), changed, tuple(remarks))


def touches(source: str) -> list[str]:
    """What a cell does to the checker, in words: importing its parts, or setting them."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {f"imports {name}": None for name in names if name.startswith(_OFF_LIMITS)}
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            base = ast.unparse(node.value)
            if base.split(".")[0] == "lab" or base.startswith("minilab"):
                found[f"sets {base}.{node.attr}"] = None
    return list(found)
