"""What commands print: one JSON object, or a table for people; and where files may go."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.traces import notice
from minilab.facts.workload import Workload

QUANTILES = ("p50", "p90", "p99", "mean")


def print_json(value: Any) -> None:
    """Print a value as JSON; what cannot be told is null, never NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


def tell(line: str) -> None:
    """One line on stderr, where it does not mix with a result."""
    print(f"minilab: {line}", file=sys.stderr)


def tell_stand_in(work: Workload) -> None:
    """Say so if a stand-in took a trace's place."""
    line = notice(work)
    if line is not None:
        tell(line)


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns of text, the first ``left`` of them flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def facts(pairs: Sequence[tuple[str, str]], width: int = 11) -> str:
    """Lines of a name and what is to be said of it; an empty name goes on with the one above."""
    return "\n".join(f"{name:<{width}}{text}" for name, text in pairs)


def duration(seconds: float | None) -> str:
    """A time as people read it: milliseconds below 1 s; "n/a" if it is unavailable."""
    if seconds is None:
        return "n/a"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.4g} ms"
    return f"{seconds:.3f} s" if abs(seconds) < 100 else f"{seconds:,.0f} s"


def quantile_rows(metrics: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    """A header and, for each metric, its quantiles."""
    rows = [["", *QUANTILES]]
    for name in names:
        known = metrics[name] or {}
        rows.append([name, *(duration(known.get(q)) for q in QUANTILES)])
    return rows


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "n/a" if value is None else f"{value:.1%}"


def plain(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits."""
    return "n/a" if value is None else f"{value:.{digits}g}"


def check_place(path: str | None, endings: Sequence[str]) -> None:
    """Refuse a file to write that has no folder or another ending, before any work is done.

    Raises:
        InputError: with the path and the way out.
    """
    if path is None:
        return
    place = Path(path)
    if place.suffix.lower() not in endings:
        given = repr(place.suffix) if place.suffix else "nothing"
        raise InputError(f"{path}: cannot end in {given}; name it {' or '.join(endings)}")
    if not place.parent.is_dir():
        raise InputError(f"{path}: {place.parent} is not a folder; make it, or name another place")
    if place.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
