"""A row of a sweep: what an experiment is and what came out of it, flat, as JSON can hold it."""

from __future__ import annotations

from typing import Any

from minilab.facts.gaps import GapRuns
from minilab.facts.metrics import METRICS, summary
from minilab.facts.runlog import RunLog
from minilab.facts.slo import goodput
from minilab.sim.experiment import Experiment

Row = dict[str, Any]

QUANTITIES = ("p50", "p90", "p99", "mean")
NUMBERS = (
    *("requests", "completed", "duration", "gpus"),
    *("attainment", "throughput", "goodput", "goodput_per_gpu"),
    *(f"{name}_{part}" for name in (*METRICS, "gap") for part in QUANTITIES),
    *("kv_peak_usage", "preemptions", "token_hit_rate"),
)
"""The names of ``numbers``."""
LISTED = 1_000_000  # gaps, 8 bytes each


def numbers(log: RunLog, slos: str | None = None, gpus: float = 1) -> Row:
    """What a row says of a run; None is unavailable.

    requests, completed, duration (s), gpus; METRIC_p50, _p90, _p99 and _mean of each metric of
    ``facts.metrics`` and of the pooled gaps (s); attainment, throughput, goodput, goodput_per_gpu
    (requests/s); kv_peak_usage (share of the blocks), preemptions, token_hit_rate (prompt tokens
    found in the prefix cache, of all scheduled prompts).
    """
    log = _written_out(log)
    row: Row = {"requests": len(log), "completed": int(log.finished.sum())}
    row |= {"duration": log.duration if log.duration > 0 else None, "gpus": gpus}
    result = None if slos is None else goodput(log, slos, gpus)
    for name in ("attainment", "throughput", "goodput", "goodput_per_gpu"):
        row[name] = None if result is None else getattr(result, name)
    for name, found in summary(log).items():
        for part in QUANTITIES:
            row[f"{name}_{part}"] = None if found is None else found[part]
    scheduled = log.requests["scheduled"] >= 0  # not NaN: its prompt was looked up
    prompt = int(log.requests["prompt_tokens"][scheduled].sum())
    cached = int(log.requests["cached_tokens"][scheduled].sum())
    return row | {
        "kv_peak_usage": log.meta.get("kv_peak_usage"),
        "preemptions": log.meta.get("preemptions"),
        "token_hit_rate": cached / prompt if prompt else None,
    }


def _written_out(log: RunLog) -> RunLog:
    """A short run's gaps as a list: ranking a list is three times as fast as searching in runs."""
    if not isinstance(log.gaps, GapRuns) or log.gaps.counts().sum() > LISTED:
        return log
    return RunLog(log.requests, log.gaps.to_lists(), log.series, log.meta)


def flat(experiment: Experiment) -> Row:
    """All fields, those of the workload among them."""
    values = experiment.to_dict()
    return {**values.pop("workload"), **values}
