"""Where a server's load has its knee: the load curve, and the highest rate that meets its SLOs.

Both repeat every load over seeds (``sim.repeats``), so that a difference can be told from luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minilab.facts.confidence import mean_ci
from minilab.facts.errors import InputError
from minilab.facts.rate_search import Cache, Evaluation, RateResult, max_rate
from minilab.facts.runlog import RunLog
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.sim.experiment import Experiment
from minilab.sim.repeats import repeats
from minilab.sim.sweep import plain
from minilab.sim.sweep_tasks import Task, run_all

BOUNDED = ("attainment", "throughput_per_gpu", "goodput_per_gpu")
AVERAGED = ("ttft_p50", "ttft_p90", "ttft_p99", "itl_p50", "itl_p99", "e2e_p50", "queue_p99")


def load_curve(
    base: Experiment,
    rates: Sequence[float],
    slos: SLO | SLOSet | str,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    jobs: int = 1,
    out: Path | str | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """How a server does under rising load: one JSON-able row per rate, means over the seeds.

    A row has rate and rate_per_gpu (requests/s), seeds (how many), data (kind of source);
    attainment, throughput_per_gpu and goodput_per_gpu, each with _low and _high, the 95 % t
    interval (None from one seed); the quantiles of AVERAGED in seconds. None is unavailable (in one
    seed: in the mean).

    Args:
        base: what serves, and which requests; a trace is stretched to each rate.
        rates: requests/s over all GPUs, rising.
        slos: as in ``facts.slo.goodput``.
        seeds: repetitions of each rate.
        jobs, out, progress: as in ``sweep``.

    Raises:
        InputError: rates that do not rise, a closed loop, and as ``sweep``.
    """
    _open_loop(base)
    loads = [float(plain(rate)) for rate in rates]
    if loads != sorted(set(loads)) or not loads or loads[0] <= 0:
        raise InputError(f"load curve: rates {loads}; must rise and be above 0, in requests/s")
    text = str(as_slo_set(slos))
    tasks = [Task(r, text) for rate in loads for r in repeats(base.with_(rate=rate), seeds)]
    rows = run_all(tasks, jobs=jobs, out=out, progress=progress)
    size = len(seeds)
    return [_point(rate, rows[k * size : (k + 1) * size]) for k, rate in enumerate(loads)]


def find_knee(
    base: Experiment,
    slos: SLO | SLOSet | str,
    target: float = 0.9,
    lo: float = 0.1,
    hi: float = 100.0,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    rel_tol: float = 0.02,
    cache: Cache | None = None,
    progress: Callable[[Evaluation], None] | None = None,
) -> RateResult:
    """The highest rate at which at least ``target`` of the requests are good.

    ``facts.rate_search.max_rate`` on ``base``: bisection between ``lo`` and ``hi`` (requests/s over
    all GPUs) for each seed; the answer is per GPU, with a 95 % interval over the seeds. For a trace
    a seed is the place where the replay starts (``sim.repeats``).

    Raises:
        InputError: a closed loop, and as ``max_rate``.
    """
    _open_loop(base)

    def run(rate: float, seed: int) -> RunLog:
        return repeats(base.with_(rate=rate), [seed])[0].run()

    return max_rate(
        *(run, slos, base.gpus, target),
        lo=lo,
        hi=hi,
        seeds=seeds,
        rel_tol=rel_tol,
        cache=cache,
        progress=progress,
    )


def _open_loop(base: Experiment) -> None:
    clients = base.workload.concurrency
    if clients is not None:
        raise InputError(
            f"concurrency={clients}: in a closed loop the server sets the rate, so there is none "
            "to vary; use concurrency=None"
        )


def _point(rate: float, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    gpus = rows[0]["gpus"]
    point: dict[str, Any] = {"rate": rate, "rate_per_gpu": rate / gpus, "seeds": len(rows)}
    point["data"] = rows[0]["data"]
    for row in rows:
        done = row["throughput"]
        row["throughput_per_gpu"] = None if done is None else done / gpus
    for name in BOUNDED:
        point |= zip((name, f"{name}_low", f"{name}_high"), _mean(rows, name), strict=True)
    return point | {name: _mean(rows, name)[0] for name in AVERAGED}


def _mean(rows: Sequence[dict[str, Any]], name: str) -> tuple[float | None, ...]:
    """Value, low, high, the bounds within what the number can be."""
    values = [row[name] for row in rows]
    if None in values:
        return None, None, None
    mean, low, high = mean_ci(values)
    most = 1.0 if name == "attainment" else math.inf
    return mean, None if low is None else max(0.0, low), None if high is None else min(most, high)
