"""RunLog: what happened to each request. Simulator, engine, client and imported files all make one.

It records, it does not judge: metric words and SLOs are in ``facts.slo``, the rules a log must obey
in ``facts.runlog_check``, files in ``facts.runlog_io``. Times are seconds, lengths are tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minilab.facts.arrays import BoolArray, FloatArray
from minilab.facts.errors import InputError
from minilab.facts.gaps import Gaps

Column = NDArray[Any]

LABELS = ("tenant", "slo_class", "status")
TIMES = ("arrival", "queued", "scheduled", "first_token", "finish")
STAGES = ("queue", "prefill", "transfer_wait", "transfer", "decode_wait", "decode")
TOKENS = ("prompt_tokens", "output_tokens", "cached_tokens", "preemptions")
STATUSES = ("finished", "aborted", "failed", "rejected")
SERIES_COLUMNS = ("t", "instance", "running", "waiting", "kv_usage", "busy")

KINDS: dict[str, type] = {
    "id": int,
    "tenant": str,
    "slo_class": str,
    **dict.fromkeys(TIMES, float),
    **dict.fromkeys(TOKENS, int),
    "status": str,
    "instance": int,
    **dict.fromkeys(STAGES, float),
}
"""Every request column and its kind (int64, float64 or text), in the order of the files."""

_DTYPES: dict[type, Any] = {int: np.int64, float: np.float64, str: object}
_BLANKS: dict[type, Any] = {int: 0, float: np.nan, str: ""}


def as_column(kind: type, values: Any) -> Column:
    """An array of the dtype this kind of column has (text is kept as Python objects)."""
    return np.asarray(values, dtype=_DTYPES[kind])


def blank_requests(count: int) -> dict[str, Column]:
    """Columns for ``count`` requests of which nothing is known yet.

    Times and stage spans are NaN (never happened), counts 0, instance -1, status "failed": what
    nobody reports on has not been served.
    """
    columns = {
        name: np.full(count, _BLANKS[kind], dtype=_DTYPES[kind]) for name, kind in KINDS.items()
    }
    columns["id"] = np.arange(count, dtype=np.int64)
    columns["instance"][:] = -1
    columns["status"][:] = "failed"
    return columns


@dataclass(frozen=True, eq=False)
class RunLog:
    """One run's record.

    ``requests``: the columns of KINDS, equally long (R), one row per request in order of id. Times
    and stage spans are float64 seconds, NaN where something never happened or was not recorded;
    ``output_tokens`` counts tokens really produced; ``instance`` is -1 for none; ``status`` is one
    of STATUSES. ``gaps``: the times between output tokens, None if not recorded. ``series``: the
    columns SERIES_COLUMNS, one row per sample of an instance (t in s; running and waiting requests;
    kv_usage and busy as shares of 1). ``meta``: what JSON can hold, e.g. config, workload_hash,
    seed, versions, data (name, kind, origin, sha256), duration (s).
    """

    requests: dict[str, Column]
    gaps: Gaps | None = None
    series: dict[str, Column] | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.requests["id"])

    @property
    def finished(self) -> BoolArray:
        """Which requests were served to their end, bool[R]."""
        return np.asarray(self.requests["status"] == "finished", dtype=np.bool_)

    @property
    def duration(self) -> float:
        """Seconds the run is judged over: meta's own, else first arrival to last finish, else NaN.

        The finish of a request counts whatever its status, so that a run does not get shorter
        (and its goodput higher) by failing its last requests.
        """
        if self.meta.get("duration") is not None:
            return float(self.meta["duration"])
        arrival, finish = self.requests["arrival"], self.requests["finish"]
        if np.isnan(arrival).all() or np.isnan(finish).all():
            return float("nan")
        return float(np.nanmax(finish) - np.nanmin(arrival))

    def check(self) -> RunLog:
        """Itself, if it keeps the rules.

        Raises:
            InputError: it does not; the message names the row, the field and the rule.
        """
        from minilab.facts.runlog_check import check  # here: the rules import this module

        check(self)
        return self

    def select(self, mask: BoolArray) -> RunLog:
        """The requests where ``mask`` (bool[R]) holds, with their gaps; series and meta stay.

        A ``duration`` in meta stays as well: goodput of a part is still per second of the whole.
        """
        mask = np.asarray(mask, dtype=np.bool_)
        if mask.shape != (len(self),):
            raise InputError(
                f"select: a mask of shape {mask.shape} for {len(self)} requests; "
                f"give one True or False per request"
            )
        requests = {name: column[mask] for name, column in self.requests.items()}
        gaps = None if self.gaps is None else self.gaps.select(mask)
        return RunLog(requests, gaps, self.series, self.meta)

    def equal(self, other: RunLog, tol: float = 0.0) -> bool:
        """Whether requests and gaps agree, times to ``tol`` seconds (see ``difference``)."""
        return self.difference(other, tol) is None

    def difference(self, other: RunLog, tol: float = 0.0) -> str | None:
        """The first difference in one sentence, or None.

        Requests and gaps are compared, gaps token by token, so that a log of runs equals the log of
        its single steps. Series and meta are not: they say how the run was made.
        """
        if len(self) != len(other):
            return f"{len(self)} requests here, {len(other)} there"
        for name, kind in KINDS.items():
            found = _column_difference(self, other, name, tol if kind is float else None)
            if found:
                return found
        return _gap_difference(self, other, tol)


def _column_difference(a: RunLog, b: RunLog, name: str, tol: float | None) -> str | None:
    here, there = a.requests[name], b.requests[name]
    same = here == there if tol is None else _near(here, there, tol)
    rows = np.flatnonzero(~np.asarray(same, dtype=np.bool_))
    if not rows.size:
        return None
    r, more = int(rows[0]), f" ({rows.size} requests differ)" if rows.size > 1 else ""
    limit = "" if tol is None else f", tolerance {tol:g} s"
    where = f"request {a.requests['id'][r]} (row {r}): {name}"
    return f"{where} {here[r]} here, {there[r]} there{limit}{more}"


def _gap_difference(a: RunLog, b: RunLog, tol: float) -> str | None:
    if a.gaps is None or b.gaps is None:
        if a.gaps is b.gaps:
            return None
        return f"gaps {'missing' if a.gaps is None else 'given'} here, not so there"
    counts, others = a.gaps.counts(), b.gaps.counts()
    rows = np.flatnonzero(counts != others)
    if rows.size:
        r = int(rows[0])
        return f"request {a.requests['id'][r]} (row {r}): {counts[r]} gaps here, {others[r]} there"
    here, there = a.gaps.to_lists(), b.gaps.to_lists()
    at = np.flatnonzero(~_near(here.values, there.values, tol))
    if not at.size:
        return None
    g = int(at[0])
    r = int(np.searchsorted(here.offsets, g, side="right")) - 1
    where = f"request {a.requests['id'][r]} (row {r}): gap {g - here.offsets[r]} of {counts[r]}"
    return f"{where} {here.values[g]} here, {there.values[g]} there, tolerance {tol:g} s"


def _near(a: FloatArray, b: FloatArray, tol: float) -> BoolArray:
    with np.errstate(invalid="ignore"):
        near = (a == b) | (np.abs(a - b) <= tol)
    return np.asarray(near | (np.isnan(a) & np.isnan(b)), dtype=np.bool_)
