"""Marks: a row per notebook and exercise, kept in a CSV file that a spreadsheet opens."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError


@dataclass(frozen=True)
class Mark:
    """One exercise of one notebook.

    ``file`` is seen from the graded folder; ``mark`` is 1 for a passed exercise, else 0;
    ``verdict`` is the check's own word, "not checked" or "no notebook"; ``said`` the most telling
    line; ``note`` what the instructor should look at. ``sha256`` is of the file and of the seed, so
    that a changed submission is graded again.
    """

    file: str
    student: str
    lab: str
    exercise: str
    part: str
    mark: int
    verdict: str
    said: str
    note: str
    sha256: str


COLUMNS = tuple(field.name for field in fields(Mark))


def read(path: Path) -> list[Mark]:
    """The marks in a file; none where there is no file yet.

    Raises:
        InputError: it is another kind of file.
    """
    if not path.exists():
        return []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
            return [Mark(**{**row, "mark": int(row["mark"])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
        raise InputError(
            f"{path}: no table of marks ({error}); move it away, or name another file"
        ) from error


def write(path: Path, marks: Iterable[Mark]) -> None:
    """Write all marks, in order of file, whole or not at all.

    A cell that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    text = io.StringIO()
    rows = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    rows.writeheader()
    for mark in sorted(marks, key=lambda mark: mark.file):
        rows.writerow({name: _harmless(value) for name, value in asdict(mark).items()})
    with whole_file(path) as file:
        file.write(text.getvalue().encode("utf-8"))


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
