"""Verdicts: where a side wins against the baseline, where it loses, and where nobody can tell.

Three looks at each pair: goodput per GPU at each point, the other numbers of a run, and the share
of good requests in parts of it (by prompt length, class, tenant). The margin is one and the same;
a part also needs an interval over its requests that excludes zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray
from minilab.facts.confidence import mean_ci
from minilab.facts.slo import SLOSet, good, unavailable
from minilab.lab.plots_base import number, percent, seconds
from minilab.lab.run_report.grid import Grid, Point, cell, paired
from minilab.lab.run_report.runs import Run
from minilab.sim.regime_cell import EQUAL, LOSES, NEITHER, WINS, Judge
from minilab.sim.regime_cell import percent as signed

EDGES = (256, 1024, 4096, 16384)
DETAILS = ("ttft_p50", "ttft_p99", "tpot_mean", "itl_p99", "stall_p99", "e2e_p99", "throughput")
UNKNOWN = "cannot be compared"
MANY = 2
"""Points of which each is looked at in detail."""
LEAST_IN_PART = 20
"""Requests below which a part says nothing."""


class Finding(NamedTuple):
    """One comparison. ``verdict``: one of regime_cell.VERDICTS, or UNKNOWN; ``size``: the
    difference as a share (of the better side; of the requests for a part), 0 where unknown."""

    side: str
    point: Point
    what: str
    verdict: str
    text: str
    size: float


def findings(grid: Grid, slos: SLOSet, judge: Judge) -> list[Finding]:
    """Everything that can be said of each side against the baseline."""
    found = []
    for side in grid.others:
        heads = [_head(grid, side, point, judge) for point in grid.points]
        found += heads
        for point in _worth_a_look(heads):
            found += _details(grid, side, point, judge)
            found += _parts(grid, side, point, slos, judge.margin)
    return found


def _worth_a_look(heads: Sequence[Finding]) -> list[Point]:
    """Every point of a few; of many, the largest win and the largest loss."""
    known = [head for head in heads if head.verdict != UNKNOWN]
    if len(known) <= MANY:
        return [head.point for head in known]
    chosen = {max(known, key=lambda head: head.size).point: None}
    chosen[min(known, key=lambda head: head.size).point] = None
    return list(chosen)


def _head(grid: Grid, side: str, point: Point, judge: Judge) -> Finding:
    found = cell(grid, side, point, judge)
    if found is None:
        return Finding(side, point, judge.metric, UNKNOWN, _why_unknown(grid, side, point), 0.0)
    values = [number(v.value) if v else "nothing" for v in (found.a, found.b)]
    shares = [percent(share) for share in (found.attainment_a, found.attainment_b)]
    size = found.difference.value if found.difference else 0.0
    by = f" by {signed(abs(size)).lstrip('+')}" if found.verdict in (WINS, LOSES) else ""
    text = (
        f"{found.verdict}{by}: {values[0]} against {values[1]} good requests/s per GPU; "
        f"{shares[0]} against {shares[1]} of the requests are good"
    )
    if found.verdict == NEITHER:
        text = f"neither serves: {shares[0]} and {shares[1]} of the requests are good"
    return Finding(side, point, judge.metric, found.verdict, text, size)


def _why_unknown(grid: Grid, side: str, point: Point) -> str:
    for name in (side, grid.baseline):
        if not grid.sides[name].get(point):
            return f"{name} has no run here"
    if paired(grid, side, point) is None:
        return "the two did not serve the same requests, so their difference means nothing"
    return "the logs lack what the limits need"


def _details(grid: Grid, side: str, point: Point, judge: Judge) -> Iterator[Finding]:
    for metric in DETAILS:
        found = cell(grid, side, point, judge._replace(metric=metric, least_attainment=0.0))
        if found is None or found.difference is None or not (found.a and found.b):
            continue
        show = number if metric == "throughput" else seconds
        size = found.difference.value
        verdict = found.verdict if found.verdict in (WINS, LOSES) else EQUAL
        by = f" by {signed(abs(size)).lstrip('+')}" if verdict in (WINS, LOSES) else ""
        text = f"{verdict}{by}: {show(found.a.value)} against {show(found.b.value)}"
        yield Finding(side, point, metric.replace("_", " "), verdict, text, size)


def _parts(grid: Grid, side: str, point: Point, slos: SLOSet, margin: float) -> Iterator[Finding]:
    pairs = paired(grid, side, point)
    if pairs is None or any(unavailable(run.log, slos) for pair in pairs for run in pair):
        return
    ours, theirs = (
        np.concatenate([good(pair[k].log, slos).astype(float) for pair in pairs]) for k in (0, 1)
    )
    for what, rows in _masks([pair[1] for pair in pairs]):
        if np.count_nonzero(rows) < LEAST_IN_PART:
            continue
        yield _part(side, point, what, ours[rows], theirs[rows], margin)


def _part(
    side: str, point: Point, what: str, ours: FloatArray, theirs: FloatArray, margin: float
) -> Finding:
    size, low, high = mean_ci((ours - theirs).tolist())
    sure = low is not None and high is not None and not low <= 0 <= high
    verdict = EQUAL if abs(size) <= margin or not sure else WINS if size > 0 else LOSES
    text = (
        f"{verdict}: {percent(float(ours.mean()))} against {percent(float(theirs.mean()))} of "
        f"{ours.size:,} requests are good"
    )
    return Finding(side, point, what, verdict, text, size)


def _masks(runs: Sequence[Run]) -> Iterator[tuple[str, BoolArray]]:
    """Parts of the requests by name: prompt lengths, then classes and tenants if there are some."""
    columns = {
        name: np.concatenate([run.log.requests[name] for run in runs])
        for name in ("prompt_tokens", "slo_class", "tenant")
    }
    bucket = np.searchsorted(np.array(EDGES), columns["prompt_tokens"], side="right")
    edges = [0, *EDGES]
    if np.unique(bucket).size > 1:
        for b in np.unique(bucket):
            top = f" to {edges[b + 1] - 1:,}" if b < len(EDGES) else " and more"
            yield f"prompts of {edges[b]:,}{top} tokens", np.asarray(bucket == b)
    for name, word in (("slo_class", "class"), ("tenant", "tenant")):
        values = sorted(set(columns[name]))
        if 1 < len(values) <= len(EDGES) * 2:
            for value in values:
                yield f"{word} {value or '(none)'}", np.asarray(columns[name] == value)
