"""Replaying a published run: its requests, limits and blocks, with at most four terms fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from minilab.core.block_hash import SegmentHasher
from minilab.core.config import SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.scheduler import Scheduler
from minilab.facts.cost import Constants
from minilab.facts.ticks import to_seconds
from minilab.judge.composition import Requests, WatchedCost, watch
from minilab.judge.fit import Equation, Fitted, fit
from minilab.judge.protocol import cost_of
from minilab.judge.replay_run import PublishedRun
from minilab.judge.terms import TERMS, Array, matrix, shape_of
from minilab.sim.cluster import Cluster
from minilab.sim.environment import no_garbage_collection
from minilab.sim.tick_cost import TickCost

FITTED = ("e_mem", "e_comp")
FITTED_TP = ("t_ar", "e_comp")
"""What is fitted on one run, on one GPU and on several. The others stay fixed: a run cannot tell
them apart from these two, and four terms do no better. With several GPUs, slow memory looks like
slow all-reduces; memory is then held where single-GPU runs of such cards have it."""

E_MEM_TP = 0.93

PCIE_SHARE = 0.25
"""16 of 64 GB/s, as the publishers measured on two RTX PRO 6000."""

QUANTILES = (50, 90, 99)


class Replayed(NamedTuple):
    """A simulated run: what its requests saw, and the end of its last token (seconds)."""

    requests: Requests
    makespan: float
    preemptions: int


def start_of(run: PublishedRun) -> Constants:
    """Where the fit of a run begins, and what stays fixed.

    Both clocks start when the engine has the request, so ``t_req`` is 0; a step in a CUDA graph
    launches a layer in about 10 us. The rest is the prior of the card.
    """
    base = Constants(t_req=0.0, t_layer=10e-6, e_link=PCIE_SHARE)
    return base if run.tp == 1 else replace(base, e_mem=E_MEM_TP, t_ar=40e-6)


def terms_of(run: PublishedRun) -> tuple[str, ...]:
    """The two terms that are fitted on ``run``."""
    return FITTED if run.tp == 1 else FITTED_TP


def replay(run: PublishedRun, constants: Constants) -> Replayed:
    """Simulate ``run`` under ``constants``."""
    cost = cost_of(run, constants)
    watched = WatchedCost(TickCost(cost.linear()), shape_of(run))
    config = SchedulerConfig(
        num_blocks=run.num_blocks,
        block_size=run.block_size,
        max_num_batched_tokens=run.launch.budget,
        max_num_seqs=run.max_num_seqs,
        enable_prefix_caching=run.prefix_cache,
    )
    scheduler = Scheduler(config, hasher=SegmentHasher(run.block_size))
    with no_garbage_collection():
        cluster = Cluster([Instance(scheduler, watched)], request_overhead=cost.request_overhead)
        cluster.run(run.requests)
    return Replayed(watch(cluster, watched), to_seconds(cluster.now), scheduler.num_preemptions)


def fit_run(run: PublishedRun, start: Constants, names: tuple[str, ...], rounds: int = 5) -> Fitted:
    """The terms ``names`` fitted on the run's own requests, the schedule taken from simulations."""
    found = Fitted(start, {}, float("inf"))
    best, least = found, float("inf")
    for _ in range(rounds):
        seen = replay(run, found.constants).requests
        off = distance(run, seen)
        if off < least:
            best, least = found, off
        found = fit(_equations(run, seen), found.constants, names, priors=_priors(start, names))
    off = distance(run, replay(run, found.constants).requests)
    return found if off < least else best


def _priors(start: Constants, names: tuple[str, ...]) -> dict[str, float]:
    return {name: getattr(start, name) for name in names}


def _equations(run: PublishedRun, seen: Requests) -> list[Equation]:
    per_unit = matrix(run)
    rows = []
    for features, measured in ((seen.ttft_features, run.ttft), (seen.tpot_features, run.tpot)):
        made = features @ per_unit
        for at, request in enumerate(seen.ids):
            if np.isfinite(made[at]).all() and measured[request] > 0:
                rows.append(Equation(made[at], float(measured[request])))
    return rows


def distance(run: PublishedRun, seen: Requests) -> float:
    """The largest absolute error of p50 and p90 of TTFT and TPOT."""
    errors = quantile_errors(run, seen)
    return max(abs(errors[name][q]) for name in ("ttft", "tpot") for q in ("p50", "p90"))


def quantile_errors(run: PublishedRun, seen: Requests) -> dict[str, dict[str, float]]:
    """Relative error of each percentile, simulated over measured minus 1."""
    return {
        name: {f"p{q}": float(a / b - 1) for q, a, b in zip(QUANTILES, *_pair(x, y), strict=True)}
        for name, x, y in (("ttft", seen.ttft, run.ttft), ("tpot", seen.tpot, run.tpot))
    }


def _pair(simulated: Array, measured: Array) -> tuple[Array, Array]:
    return np.nanpercentile(simulated, QUANTILES), np.nanpercentile(measured, QUANTILES)


def report(run: PublishedRun, constants: Constants, fitted: tuple[str, ...]) -> dict[str, Any]:
    """One row of the replay table, as plain JSON values."""
    made = replay(run, constants)
    seen = made.requests
    each_ttft = np.abs(seen.ttft / run.ttft[seen.ids] - 1)
    each_tpot = np.abs(seen.tpot / run.tpot[seen.ids] - 1)
    return {
        "run": run.name,
        "fitted": list(fitted),
        "constants": {n: getattr(constants, n) for n in TERMS},
        **quantile_errors(run, seen),
        "makespan": made.makespan / run.makespan - 1,
        "request_median": {
            "ttft": float(np.median(each_ttft)),
            "tpot": float(np.median(each_tpot)),
        },
        "preemptions": made.preemptions,
    }
