"""RunLog as JSON lines: a header, then one line per request, run, span and sample.

The header states how many lines of each kind follow, so that a file cut short is noticed. NaN is
null, floats are written so that they read back bit for bit. Use ``facts.runlog_io``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from minilab.facts.errors import InputError
from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.runlog import KINDS, SERIES_COLUMNS, Column, RunLog, as_column

VERSION = 1
SERIES_KINDS: dict[str, type] = {
    name: int if name in ("instance", "running", "waiting") else float for name in SERIES_COLUMNS
}
_INT64 = 1 << 63
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

Rows = list[tuple[int, Any]]  # (line number, what the line says)


def write(log: RunLog, file: BinaryIO) -> None:
    """Write the lines; the log has been checked."""
    for line in _lines(log):
        file.write(_encode(line).encode() + b"\n")


def _lines(log: RunLog) -> Iterator[dict[str, Any]]:
    gaps, series = log.gaps, log.series
    runs, spans = (gaps.runs, gaps.spans) if isinstance(gaps, GapRuns) else ({}, {})
    tables = (("run", RUN_COLUMNS, runs), ("span", SPAN_COLUMNS, spans))
    yield {
        "minilab_runlog": VERSION,
        "meta": log.meta,
        "gaps": {GapLists: "lists", GapRuns: "runs", type(None): None}[type(gaps)],
        "series": series is not None,
        "lines": {
            "request": len(log),
            "run": len(runs.get("n", ())),
            "span": len(spans.get("request", ())),
            "sample": len(series["t"]) if series is not None else 0,
        },
        "run": RUN_COLUMNS,
        "span": SPAN_COLUMNS,
    }
    for r, request in enumerate(_dicts(log.requests, KINDS)):
        if isinstance(gaps, GapLists):
            request["gaps"] = gaps.row(r).tolist()
        yield {"request": request}
    for name, columns, table in tables:
        for row in zip(*(table[c].tolist() for c in columns if c in table), strict=True):
            yield {name: row}
    for sample in _dicts(series or {}, SERIES_KINDS if series else {}):
        yield {"sample": sample}


def _dicts(table: dict[str, Column], kinds: dict[str, type]) -> Iterator[dict[str, Any]]:
    columns = []
    for name, kind in kinds.items():
        values = table[name].tolist()
        columns.append([None if v != v else v for v in values] if kind is float else values)
    for row in zip(*columns, strict=True):
        yield dict(zip(kinds, row, strict=True))


def read(path: Path) -> RunLog:
    """Read the lines. Raises InputError naming the file and the line; OSError as it comes."""
    with open(path, "rb") as file:
        lines = _parsed(path, file)
        number, header = next(lines, (1, {}))
        check_version(path, header.get("minilab_runlog"))
        wanted = _header(path, header)
        found: dict[str, Rows] = {name: [] for name in wanted}
        for number, line in lines:
            name, value = next(iter(line.items()), ("", None))
            if len(line) != 1 or name not in found:
                _refuse(path, number, f"keys {list(line)[:3]}", f"one of {list(found)} is expected")
            found[name].append((number, value))
    for name, count in wanted.items():
        if len(found[name]) != count:
            _refuse(
                path, number, f"the file ends with {len(found[name])} {name} lines",
                f"its first line promises {count}; it was cut or edited",
            )  # fmt: skip
    requests = found["request"]
    gaps: GapLists | GapRuns | None = None
    lists = [_gap_list(path, n, v) for n, v in requests] if header["gaps"] == "lists" else None
    columns = _table(path, requests, KINDS)
    if lists is not None:
        gaps = GapLists.of(lists)
    elif header["gaps"] == "runs":
        runs = _integers(path, found["run"], RUN_COLUMNS)
        gaps = GapRuns(runs, _integers(path, found["span"], SPAN_COLUMNS), len(requests))
    series = _table(path, found["sample"], SERIES_KINDS) if header["series"] else None
    return RunLog(columns, gaps, series, header["meta"])


def check_version(path: Path, version: Any) -> None:
    """Refuse what is not a run log, or one from a later minilab."""
    if type(version) is not int or version < 1:
        raise InputError(
            f"{path}: not a run log (no minilab_runlog version at its start); "
            f"give a file that `minilab sim --out` or runlog_io.write made"
        )
    if version > VERSION:
        raise InputError(
            f"{path}: run log version {version}; this minilab reads up to version {VERSION}; "
            f"upgrade minilab, or make the log again with this one"
        )


def _refuse(path: Path, number: int, what: str, limit: str) -> NoReturn:
    raise InputError(f"{path}:{number}: {what}; {limit}; make the log again, or mend this line")


def _parsed(path: Path, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON, write null")

    for number, text in enumerate(file, start=1):
        try:
            line = json.loads(text, parse_constant=no_constant)
        except (ValueError, RecursionError) as error:
            shown = text[:40].decode(errors="replace").strip()
            _refuse(path, number, f"{shown!r} is not JSON", f"{error}".splitlines()[0])
        if not isinstance(line, dict):
            _refuse(path, number, f"{str(line)[:40]!r}", "each line must be one JSON object")
        yield number, line


def _header(path: Path, header: dict[str, Any]) -> dict[str, int]:
    """The promised number of lines by kind."""
    expected = {"run": list(RUN_COLUMNS), "span": list(SPAN_COLUMNS)}
    lines = header.get("lines")
    kinds = ("request", "run", "span", "sample")
    if (
        not isinstance(header.get("meta"), dict)
        or header.get("gaps", 0) not in (None, "lists", "runs")
        or not isinstance(header.get("series"), bool)
        or not isinstance(lines, dict)
        or any(type(lines.get(kind)) is not int for kind in kinds)
        or any(header.get(name) != columns for name, columns in expected.items())
    ):
        _refuse(path, 1, "the header is incomplete", f"it needs meta, gaps, series, {expected}, "
                f"and lines with a number for each of {kinds}")  # fmt: skip
    return {kind: lines[kind] for kind in kinds}


def _gap_list(path: Path, number: int, request: Any) -> list[float]:
    gaps = request.pop("gaps", None) if isinstance(request, dict) else None
    if not isinstance(gaps, list) or not all(type(gap) in (int, float) for gap in gaps):
        _refuse(path, number, f"gaps {str(gaps)[:40]}", "must be a list of seconds")
    return gaps


def _table(path: Path, rows: Rows, kinds: dict[str, type]) -> dict[str, Column]:
    for number, row in rows:
        if not isinstance(row, dict) or row.keys() != kinds.keys():
            given = set(row) if isinstance(row, dict) else {str(row)[:40]}
            wrong = sorted(given ^ kinds.keys())
            _refuse(path, number, f"missing or unknown: {wrong}", f"needs {', '.join(kinds)}")
    return {name: _column(path, rows, name, kind) for name, kind in kinds.items()}


def _column(path: Path, rows: Rows, name: str, kind: type) -> Column:
    allowed = {int: (int,), float: (float, int, type(None)), str: (str,)}[kind]
    values = [row[name] for _, row in rows]
    for (number, _), value in zip(rows, values, strict=True):
        if type(value) not in allowed or (type(value) is int and not -_INT64 <= value < _INT64):
            word = {int: "a 64-bit integer", float: "a number or null", str: "text"}[kind]
            _refuse(path, number, f"{name} {str(value)[:40]!r}", f"must be {word}")
    return as_column(kind, values)


def _integers(path: Path, rows: Rows, columns: tuple[str, ...]) -> dict[str, Column]:
    for number, row in rows:
        if (
            not isinstance(row, list)
            or len(row) != len(columns)
            or not all(type(v) is int and -_INT64 <= v < _INT64 for v in row)
        ):
            _refuse(path, number, f"{str(row)[:60]}", f"must be 64-bit integers {list(columns)}")
    table = np.array([row for _, row in rows], dtype=np.int64).reshape(len(rows), len(columns))
    return {name: table[:, i].copy() for i, name in enumerate(columns)}
