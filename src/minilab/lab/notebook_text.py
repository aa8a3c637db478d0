"""From the text of a solution to the text of its lab: holes, outputs, the first cell.

A region between ``# BEGIN SOLUTION 1.2`` and ``# END SOLUTION`` becomes a hole. Its exercise is
named by the marker, else by the cell's tag ``exercise-1.2``, else by the nearest heading above that
says "Exercise 1.2". The conclusion of a report is left empty. Nothing here touches a file.
"""

from __future__ import annotations

import ast
import copy
import importlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.colab import Stamp, first_cell
from minilab.lab.exercise import lab_name

COLAB_TAG = "colab"
DROPPED_TAG = "solution-only"
_BEGIN = re.compile(r"(\s*)#\s*BEGIN SOLUTION(?:\s+(\d+[a-z]?\.\w+))?\s*")
_END = re.compile(r"\s*#\s*END SOLUTION\s*")
_ALMOST = re.compile(r"\b(BEGIN|END)[\s_-]*SOLUTION\b", re.IGNORECASE)
_HEADING = re.compile(r"^#+\s.*?\bExercise\s+(\d+[a-z]?\.\w+)", re.MULTILINE)
_TAG = re.compile(r"exercise-(\d+[a-z]?\.\w+)")
_KEPT_CELL_METADATA = ("tags", "cellView")
_KEPT_METADATA = ("accelerator", "colab")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def need(name: str) -> Any:
    """A package of the build or the check, imported when used; InputError where it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{name} is not installed here; pip install -r requirements.txt brings it"
        ) from error


def lab_notebook(solution: Any, name: str, stamp: Stamp) -> Any:
    """The lab of a solution notebook. name: its file name, for messages ("01_goodput.ipynb").

    Cells keep their ids; those tagged ``solution-only`` are dropped, outputs and execution counts
    are stripped. Raises InputError for markers that are unmatched, nested, misspelt, of another
    lab, outside code, or without an exercise.
    """
    lab = with_first_cell(solution, stamp)
    lab.metadata = {key: lab.metadata[key] for key in _KEPT_METADATA if key in lab.metadata}
    lab.metadata |= {"kernelspec": dict(_KERNEL), "language_info": {"name": "python"}}
    lab.cells = list(_lab_cells(lab.cells, name))
    return need("nbformat").from_dict(lab)


def with_first_cell(notebook: Any, stamp: Stamp) -> Any:
    """A copy whose Colab cell is the one of this stamp; put before all code where it had none."""
    changed = copy.deepcopy(notebook)
    tagged = [cell for cell in changed.cells if COLAB_TAG in _tags(cell)]
    if not tagged:
        cell = need("nbformat").v4.new_code_cell(
            id="colab-setup", metadata={"tags": [COLAB_TAG, "nbval-ignore-output"]}
        )
        kinds = [c.cell_type for c in changed.cells]
        changed.cells.insert(kinds.index("code") if "code" in kinds else len(kinds), cell)
        tagged = [cell]
    tagged[0].source = first_cell(stamp)
    return changed


def with_holes(source: str, exercise: str, where: str) -> str:
    """The source of a code cell with each solution region replaced by a hole.

    exercise: the id where a marker names none, may be empty. where: file and cell, for messages.
    """
    kept: list[str] = []
    open_at = 0
    for number, line in enumerate(source.split("\n"), 1):
        begin, end = _BEGIN.fullmatch(line), _END.fullmatch(line)
        if begin and open_at:
            raise InputError(
                f"{where}, line {number}: BEGIN SOLUTION inside the region of line {open_at}; "
                "end that one first"
            )
        if end and not open_at:
            raise InputError(f"{where}, line {number}: END SOLUTION without a BEGIN; remove it")
        if not begin and not end and _ALMOST.search(line):
            raise InputError(
                f"{where}, line {number}: {line.strip()!r} is no marker; write "
                "# BEGIN SOLUTION 1.2 or # END SOLUTION on a line of its own"
            )
        if begin:
            open_at = number
            kept += _hole(begin[1], begin[2] or exercise, f"{where}, line {number}")
        elif end:
            open_at = 0
        elif not open_at:
            kept.append(line)
    if open_at:
        raise InputError(
            f"{where}, line {open_at}: BEGIN SOLUTION without an END; add # END SOLUTION"
        )
    return "\n".join(kept)


def without_conclusion(source: str) -> str:
    """The source with an empty text for each ``conclusion=``: those words are the learner's own."""
    if "conclusion=" not in source:
        return source
    lines = source.encode().splitlines(keepends=True)  # columns of ast are bytes
    starts = [0, *itertools.accumulate(map(len, lines))]
    text = source.encode()
    values = [
        argument.value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        for argument in call.keywords
        if argument.arg == "conclusion"
    ]
    for value in sorted(values, key=lambda v: v.lineno, reverse=True):
        end = starts[(value.end_lineno or value.lineno) - 1] + (value.end_col_offset or 0)
        text = text[: starts[value.lineno - 1] + value.col_offset] + b'""' + text[end:]
    return text.decode()


def _hole(indent: str, exercise: str, where: str) -> list[str]:
    if not exercise:
        raise InputError(
            f"{where}: the region names no exercise; write # BEGIN SOLUTION 1.2, or tag the cell "
            "exercise-1.2, or put a heading 'Exercise 1.2' above"
        )
    return [f"{indent}...", f'{indent}raise NotImplementedError("Exercise {exercise}")']


def _lab_cells(cells: list[Any], name: str) -> Iterator[Any]:
    heading = ""
    for index, cell in enumerate(cells):
        where = f"{name}: cell {index} ({cell.id})"
        if cell.cell_type == "markdown":
            named = _HEADING.findall(cell.source)
            heading = named[-1] if named else heading
        if DROPPED_TAG in _tags(cell):
            continue
        if cell.cell_type == "code":
            source = with_holes(cell.source, _tagged_exercise(cell) or heading, where)
            _refuse_foreign(source, name, where)
            cell.update(source=without_conclusion(source), outputs=[], execution_count=None)
        elif _ALMOST.search(cell.source):
            raise InputError(
                f"{where}: a solution marker outside code hides nothing; tag the cell {DROPPED_TAG}"
            )
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in _KEPT_CELL_METADATA}
        yield cell


def _refuse_foreign(source: str, name: str, where: str) -> None:
    for lab in re.findall(r'raise NotImplementedError\("Exercise (\d+[a-z]?)\.\w+"\)', source):
        here = lab_name(name.split("_")[0])
        if lab_name(lab) != here:
            raise InputError(
                f"{where}: an exercise of lab {lab_name(lab)}; number it {here.lstrip('0')}.x here"
            )


def _tagged_exercise(cell: Any) -> str:
    matches = [_TAG.fullmatch(tag) for tag in _tags(cell)]
    return next((match[1] for match in matches if match), "")


def _tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))
