"""The rules a RunLog must keep, whoever made it. Called as ``RunLog.check()``.

A log that breaks one would not crash the metrics: it would give wrong ones. So each rule names the
first row that breaks it. Times may be off by rounding only.
"""

from __future__ import annotations

import json
from typing import NoReturn

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray
from minilab.facts.errors import InputError
from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.runlog import (
    KINDS,
    SERIES_COLUMNS,
    STAGES,
    STATUSES,
    TIMES,
    TOKENS,
    Column,
    RunLog,
)

_DTYPE_KINDS = {int: "i", float: "f", str: "UO"}


def check(log: RunLog) -> None:
    """Raise InputError naming row, field, what was found and the rule, for the first broken one."""
    _columns("requests", log.requests, tuple(KINDS))
    for name, kind in KINDS.items():
        if log.requests[name].dtype.kind not in _DTYPE_KINDS[kind]:
            _refuse(f"requests: {name} has dtype {log.requests[name].dtype}; needs {kind.__name__}")
    _ids_and_labels(log)
    _counts(log)
    _times(log)
    _recorded(log)
    if log.gaps is not None:
        _gaps(log, log.gaps)
    if log.series is not None:
        _columns("series", log.series, SERIES_COLUMNS)
    _meta(log)


def _refuse(message: str) -> NoReturn:
    raise InputError(message)


def _first(log: RunLog, broken: BoolArray | Column, field: str, rule: str) -> None:
    """Refuse the first row where ``broken`` holds, with its value."""
    for r in np.flatnonzero(broken)[:1].tolist():
        _refuse(f"{_row(log, r)}: {field} {log.requests[field][r]!s} {rule}")


def _row(log: RunLog, r: int) -> str:
    return f"request {log.requests['id'][r]} (row {r})"


def _columns(what: str, columns: dict[str, Column], names: tuple[str, ...]) -> None:
    missing, extra = set(names) - set(columns), set(columns) - set(names)
    if missing or extra:
        wrong = f"lacks {sorted(missing)}" if missing else f"has unknown {sorted(extra)}"
        _refuse(f"{what}: {wrong}; its columns are {', '.join(names)}")
    lengths = {name: len(columns[name]) for name in names}
    if len(set(lengths.values())) > 1:
        _refuse(f"{what}: columns of different lengths {lengths}; each needs one value per row")


def _ids_and_labels(log: RunLog) -> None:
    ids = log.requests["id"]
    later = np.flatnonzero(np.diff(ids) <= 0)
    if later.size:
        r = int(later[0]) + 1
        _refuse(f"row {r}: id {ids[r]} after id {ids[r - 1]}; sort by id, each id once")
    for r, status in enumerate(log.requests["status"]):
        if status not in STATUSES:
            _refuse(f"{_row(log, r)}: status {status!r}; use one of {', '.join(STATUSES)}")
    for name in ("tenant", "slo_class"):
        for r, label in enumerate(log.requests[name]):
            if not isinstance(label, str):
                _refuse(f"{_row(log, r)}: {name} {label!r} is not text; use '' for none")


def _counts(log: RunLog) -> None:
    for name in TOKENS:
        _first(log, log.requests[name] < 0, name, "is negative; use 0 for none")
    _first(log, log.requests["instance"] < -1, "instance", "is below -1; use -1 for none")


def _times(log: RunLog) -> None:
    columns = log.requests
    for name in (*TIMES, *STAGES):
        _first(log, np.isinf(columns[name]), name, "is infinite; use NaN for never")
    for i, later in enumerate(TIMES):
        for earlier in TIMES[:i]:
            for r in np.flatnonzero(_before(columns[later], columns[earlier]))[:1].tolist():
                _refuse(
                    f"{_row(log, r)}: {later} {columns[later][r]} comes before "
                    f"{earlier} {columns[earlier][r]}; both must be seconds on one clock"
                )
    for name in STAGES:
        _first(log, columns[name] < -1e-9, name, "is negative; a stage lasts 0 s or more")
    silent = ~np.isnan(columns["first_token"]) & (columns["output_tokens"] < 1)
    _first(log, silent, "first_token", "with output_tokens 0; count the tokens produced")


def _before(later: FloatArray, earlier: FloatArray) -> BoolArray:
    """NaN compares False; rounding of sums (and of epoch seconds) is forgiven."""
    slack = 1e-9 + 4 * np.spacing(np.abs(earlier))
    return np.asarray(later < earlier - slack, dtype=np.bool_)


def _recorded(log: RunLog) -> None:
    """A time is known for every request it happened to, or for none: else quantiles would lie."""
    happened = {
        "arrival": np.ones(len(log), dtype=np.bool_),
        "scheduled": log.finished,
        "finish": log.finished,
        "first_token": log.finished & (log.requests["output_tokens"] > 0),
    }
    for name, rows in happened.items():
        absent = np.isnan(log.requests[name]) & rows
        if absent.sum() < rows.sum():
            rule = "though other requests have one; record it for all that finished, or for none"
            _first(log, absent, name, rule)


def _gaps(log: RunLog, gaps: GapLists | GapRuns) -> None:
    rows = len(gaps.offsets) - 1 if isinstance(gaps, GapLists) else gaps.requests
    if rows != len(log):
        _refuse(f"gaps for {rows} requests, but the log has {len(log)}; give one row each")
    if isinstance(gaps, GapRuns):
        _runs_and_spans(gaps)
    else:
        ends = gaps.offsets
        if ends[0] != 0 or ends[-1] != gaps.values.size or (np.diff(ends) < 0).any():
            _refuse(f"gaps: offsets must rise from 0 to {gaps.values.size}, the number of values")
        for g in np.flatnonzero(~((gaps.values >= 0) & (gaps.values < np.inf)))[:1].tolist():
            r = int(np.searchsorted(ends, g, side="right")) - 1
            _refuse(
                f"{_row(log, r)}: gap {g - ends[r]} is {gaps.values[g]}; give seconds, 0 or more"
            )
    tokens, found = log.requests["output_tokens"], gaps.counts()
    wanted = np.maximum(tokens - 1, 0)
    broken = np.where(log.finished, found != wanted, found > wanted)
    for r in np.flatnonzero(broken)[:1].tolist():
        _refuse(
            f"{_row(log, r)}: {found[r]} gaps for output_tokens {tokens[r]}; "
            f"n tokens have n - 1 gaps (k tokens that came at once: one gap and k - 1 zeros)"
        )


def _runs_and_spans(gaps: GapRuns) -> None:
    runs, spans = gaps.runs, gaps.spans
    _columns("gaps.runs", runs, RUN_COLUMNS)
    _columns("gaps.spans", spans, SPAN_COLUMNS)
    for name, column in (*runs.items(), *spans.items()):
        if column.dtype != np.int64:
            _refuse(f"gaps: {name} has dtype {column.dtype}; needs int64 (ticks and counts)")
    count = runs["n"].size
    last_step = runs["first"] + runs["slope"] * (runs["n"] - 1)
    low, high, request = spans["run_from"], spans["run_to"], spans["request"]
    in_range = (low >= 0) & (low <= high) & (high <= count)
    _no("gaps.runs", runs["n"] < 1, "n below 1")
    _no("gaps.runs", (runs["first"] < 0) | (last_step < 0), "a step of negative length")
    _no("gaps.runs", runs["batch"] < 0, "a negative batch")
    _no("gaps.spans", (request < 0) | (request >= gaps.requests), "request is not a row")
    _no("gaps.spans", np.diff(request, prepend=-1) < 0, "not sorted by request")
    _no("gaps.spans", ~in_range, f"run_from, run_to not in order within 0..{count}")
    _no("gaps.spans", spans["zeros"] < 0, "negative zeros")
    changes = np.concatenate([[0], np.cumsum(np.diff(runs["instance"], prepend=0) != 0), [0]])
    mixed = (high > low) & (changes[1:][low] != changes[high])
    _no("gaps.spans", mixed, "runs of two instances")
    cover = np.bincount(low, minlength=count + 1) - np.bincount(high, minlength=count + 1)
    crowded = (runs["batch"] > 0) & (np.cumsum(cover)[:-1] > runs["batch"])
    _no("gaps.runs", crowded, "more spans than its batch")
    _no("gaps", gaps.per_request_quantile(0.0) < 0, "a token before the request's previous one")


def _no(what: str, broken: BoolArray | Column, fault: str) -> None:
    rows = np.flatnonzero(broken)
    if rows.size:
        _refuse(f"{what}: row {rows[0]}: {fault}; see GapRuns for what a row means")


def _meta(log: RunLog) -> None:
    duration = log.meta.get("duration")
    if duration is not None and not (isinstance(duration, (int, float)) and 0 < duration < np.inf):
        _refuse(f"meta: duration {duration!r}; give seconds above 0, or leave it out")
    try:
        json.dumps(log.meta, allow_nan=False)
    except (TypeError, ValueError) as error:
        _refuse(f"meta: {error}; keep to what JSON can hold (None for an unknown number)")
