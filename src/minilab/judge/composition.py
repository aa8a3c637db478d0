"""Frozen step compositions: what happened in a simulated benchmark, with the seconds taken out.

The schedule of a run (who shares a step with whom) changes little when constants do, and with the
schedule held fixed mean TTFT and TPOT are sums of features. So one simulation gives a small table
that a fit can evaluate in microseconds; simulate again to score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minilab.core.plan import StepPlan
from minilab.core.request import FINISHED
from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.facts.ticks import TICKS_PER_SECOND
from minilab.judge import protocol
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.terms import FEATURES, Array, Shape, shape_of
from minilab.sim.cluster import Cluster
from minilab.sim.environment import no_garbage_collection
from minilab.sim.tick_cost import TickCost


class Requests(NamedTuple):
    """What each finished request of a simulated run saw, float64[R] seconds, and its features.

    ``ttft == ttft_features @ matrix @ x`` while the schedule holds (float64[R, 8], see ``terms``);
    the same for ``tpot``, which is NaN for one-token outputs. ``ids``: int64[R], ascending.
    """

    ids: np.ndarray
    ttft: Array
    tpot: Array
    ttft_features: Array
    tpot_features: Array


class Simulated(NamedTuple):
    """Mean TTFT and TPOT (seconds) of a simulated benchmark, and their features, float64[8] each.

    ``unserved`` counts requests that did not finish: the pool could not hold them.
    """

    ttft: float
    tpot: float
    ttft_features: Array
    tpot_features: Array
    unserved: int


class WatchedCost:
    """A cost that also writes down what it was asked to charge for, one entry per run."""

    def __init__(self, inner: TickCost, shape: Shape) -> None:
        self._inner = inner
        self._shape = shape
        self._touched: dict[int, float] = {}
        self.first: list[tuple[float, ...]] = []
        self.growth: list[tuple[int, int]] = []

    def run(self, plan: StepPlan) -> tuple[int, int, int]:
        """As ``core.instance.RunCost``."""
        tokens = plan.num_tokens
        touched = self._touched.get(tokens)
        if touched is None:
            share = 1.0 - (1.0 - self._shape.expert_share) ** tokens
            touched = self._touched[tokens] = share
        seen = growing = 0
        window = self._shape.window
        if window:
            for request in plan.decodes.values():
                length = plan.context_of(request)
                seen += min(length, window)
                growing += length < window
        self.first.append(
            (1.0, tokens, touched, plan.num_seqs, plan.context, seen, plan.pairs, 0.0)
        )
        self.growth.append((plan.num_decodes, growing))
        return self._inner.run(plan)


def simulate(row: SiliconRow, constants: Constants, seed: int = 0) -> Simulated:
    """The row's benchmark under ``constants``. Raises InputError where nothing fits."""
    cost = protocol.cost_of(row, constants)
    watched = WatchedCost(TickCost(cost.linear()), shape_of(row))
    work = protocol.workload(row, seed)
    with no_garbage_collection():
        cluster = protocol.cluster(row, watched, cost.request_overhead)
        cluster.run(work.requests)
    seen = watch(cluster, watched)
    unserved = len(cluster.states) - len(seen.ids)
    if unserved == len(cluster.states):
        raise InputError(f"{row.id}: the KV pool can hold none of its requests")
    return Simulated(
        float(np.mean(seen.ttft)),
        float(np.nanmean(seen.tpot)),
        seen.ttft_features.mean(axis=0),
        np.nanmean(seen.tpot_features, axis=0),
        unserved,
    )


def watch(cluster: Cluster, watched: WatchedCost) -> Requests:
    """What the requests of a cluster of one instance saw, its cost having been ``watched``."""
    done = (s for s in cluster.states.values() if s.status == FINISHED)
    states = sorted(done, key=lambda state: state.id)
    ended = cluster.recorder.finished_at
    first = np.array([s.first_token_at for s in states], dtype=np.int64)
    last = np.array([ended[s.id] for s in states], dtype=np.int64)
    queued = np.array([s.queued_at for s in states], dtype=np.int64)
    sent = np.array([s.request.arrival for s in states])  # type: ignore[attr-defined]
    gaps = np.array([s.max_tokens - 1 for s in states], dtype=np.float64)
    gaps[gaps == 0] = np.nan
    timeline = _Timeline(cluster, watched)
    wait = timeline.at(first) - timeline.at(queued)
    wait[:, FEATURES.index("requests")] = 1.0
    return Requests(
        np.array([s.id for s in states], dtype=np.int64),
        first / TICKS_PER_SECOND - sent,
        (last - first) / TICKS_PER_SECOND / gaps,
        wait,
        (timeline.at(last) - timeline.at(first)) / gaps[:, None],
    )


class _Timeline:
    """Features accumulated since the start, at any tick."""

    def __init__(self, cluster: Cluster, watched: WatchedCost) -> None:
        runs = np.array(cluster.instances[0].runs, dtype=np.int64).reshape(-1, 7)
        start, first, slope, n = runs[:, 0], runs[:, 1], runs[:, 2], runs[:, 3]
        pairs = n * (n - 1) // 2
        self._start = start
        self._end = start + n * first + slope * pairs
        features = np.array(watched.first)[: len(n)] * n[:, None]
        growth = np.array(watched.growth)[: len(n)] * pairs[:, None]
        features[:, FEATURES.index("context")] += growth[:, 0]
        features[:, FEATURES.index("window")] += growth[:, 1]
        self._features = features
        self._before = np.vstack([np.zeros(len(FEATURES)), np.cumsum(features, axis=0)])

    def at(self, ticks: np.ndarray) -> Array:
        """float64[n, 8]; within a run it grows evenly."""
        run = np.searchsorted(self._end, ticks, side="right")
        inside = np.minimum(run, len(self._end) - 1)
        length = self._end[inside] - self._start[inside]
        share = np.clip((ticks - self._start[inside]) / length, 0.0, 1.0)
        share = np.where(run < len(self._end), share, 0.0)
        found: Array = self._before[run] + share[:, None] * self._features[inside]
        return found
