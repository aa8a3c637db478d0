"""Who met the SLO, and goodput: good requests per second, per GPU.

A request is good if it finished and meets every limit of its class. Failed, rejected and aborted
requests stay in the denominator; a metric that the log cannot tell makes the answer None, with the
reason, never a pass. The words are in ``facts.metrics``, the limits in ``facts.slo_set``, both
exported here with the confidence intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minilab.facts.arrays import BoolArray
from minilab.facts.confidence import Interval, attainment_ci, bootstrap_ci, mean_ci
from minilab.facts.errors import InputError
from minilab.facts.metrics import METRICS, Metric, available, metric, quantiles, summary
from minilab.facts.runlog import Column, RunLog
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set

__all__ = [
    "METRICS",
    "SLO",
    "Goodput",
    "Interval",
    "Metric",
    "SLOSet",
    "Share",
    "attainment",
    "attainment_ci",
    "available",
    "bootstrap_ci",
    "by_prompt_length",
    "cost_per_good_request",
    "good",
    "goodput",
    "mean_ci",
    "metric",
    "summary",
    "unavailable",
]

SLACK = 1e-9
"""Seconds by which a limit may be missed: a step of 0.05 s meets itl=0.05 whatever was rounded."""


@dataclass(frozen=True)
class Share:
    """A class's or tenant's part; its goodput is per second of the whole run."""

    total: int
    good: int
    attainment: float
    goodput: float | None


@dataclass(frozen=True)
class Goodput:
    """How a run did against its SLOs. Rates are requests/s; None is unavailable (see ``reason``).

    ``throughput`` counts finished requests, good or not. ``unused_classes`` names classes that have
    an SLO but no request: often a misspelt name.
    """

    attainment: float | None
    good: int | None
    total: int
    completed: int
    duration: float | None
    throughput: float | None
    goodput: float | None
    goodput_per_gpu: float | None
    gpus: float
    unavailable: tuple[str, ...]
    reason: str | None
    by_class: dict[str, Share]
    by_tenant: dict[str, Share]
    unused_classes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def unavailable(log: RunLog, slos: SLO | SLOSet | str) -> tuple[str, ...]:
    """The metrics that the SLOs of the log's classes need and the log cannot tell."""
    slo_set = as_slo_set(slos)
    needed = {
        name
        for slo_class in set(log.requests["slo_class"])
        for name, _ in slo_set.for_class(slo_class).limits
    }
    return tuple(name for name in METRICS if name in needed and not available(log, name))


def good(log: RunLog, slos: SLO | SLOSet | str) -> BoolArray:
    """Which requests are good, bool[R].

    Limits are inclusive (to SLACK). A request with at most one output token meets every limit on
    the time between tokens (tpot, itl, stall); any other missing value fails.

    Raises:
        InputError: a class has no SLO, or the log cannot tell a metric that is needed (ask
            ``unavailable`` first; ``attainment`` and ``goodput`` do).
    """
    slo_set = as_slo_set(slos)
    judged = log.finished.copy()
    one_token = log.requests["output_tokens"] <= 1
    values: dict[str, Any] = {}
    for slo_class in sorted(set(log.requests["slo_class"])):
        rows = np.asarray(log.requests["slo_class"] == slo_class, dtype=np.bool_)
        for name, seconds in slo_set.for_class(slo_class).limits:
            if name not in values:
                values[name] = metric(log, name)
            if values[name] is None:
                raise InputError(_reason((name,)))
            meets = values[name] <= seconds + SLACK  # NaN: no
            if METRICS[name].between_tokens:
                meets |= one_token
            judged &= meets | ~rows
    return judged


def attainment(log: RunLog, slos: SLO | SLOSet | str) -> float | None:
    """The share of all requests that are good, 0..1; None if unavailable or without requests."""
    if not len(log) or unavailable(log, slos):
        return None
    return float(good(log, slos).mean())


def goodput(log: RunLog, slos: SLO | SLOSet | str, gpus: float = 1) -> Goodput:
    """Attainment and goodput, in all and by class and tenant.

    goodput = good requests / ``log.duration``; goodput_per_gpu divides by ``gpus``.

    Raises:
        InputError: gpus is not above 0, or a class has no SLO.
    """
    if not gpus > 0:
        raise InputError(f"goodput: {gpus} GPUs; give a number above 0")
    slo_set = as_slo_set(slos)
    missing = unavailable(log, slo_set)
    duration = log.duration if log.duration > 0 else None  # NaN is not
    reason = _reason(missing) if missing else None
    if not len(log):
        reason = "the log has no requests"
    elif duration is None and reason is None:
        reason = "the run has no duration: it needs arrival and finish times that span some time"
    completed = int(log.finished.sum())
    judged = None if missing or not len(log) else good(log, slo_set)
    hits = None if judged is None else int(judged.sum())
    rate = None if hits is None or duration is None else hits / duration
    present = set(log.requests["slo_class"])
    return Goodput(
        attainment=None if hits is None else hits / len(log),
        good=hits,
        total=len(log),
        completed=completed,
        duration=duration,
        throughput=None if duration is None else completed / duration,
        goodput=rate,
        goodput_per_gpu=None if rate is None else rate / gpus,
        gpus=gpus,
        unavailable=missing,
        reason=reason,
        by_class=_shares(log.requests["slo_class"], judged, duration),
        by_tenant=_shares(log.requests["tenant"], judged, duration),
        unused_classes=tuple(name for name, _ in slo_set.classes if name not in present),
    )


def _reason(missing: tuple[str, ...]) -> str:
    return (
        f"SLO on {', '.join(missing)}: the log cannot tell (it lacks "
        f"{' and '.join(dict.fromkeys(_lacks(name) for name in missing))}); "
        f"record that, or leave the limit out"
    )


def _lacks(name: str) -> str:
    needs = METRICS[name].needs
    return " or ".join(needs) if needs else "the gaps between tokens"


def _shares(labels: Column, judged: BoolArray | None, duration: float | None) -> dict[str, Share]:
    if judged is None:
        return {}
    shares = {}
    for label in sorted(set(labels)):
        hits = judged[np.asarray(labels == label, dtype=np.bool_)]
        count = int(hits.sum())
        rate = None if duration is None else count / duration
        shares[str(label)] = Share(hits.size, count, count / hits.size, rate)
    return shares


def by_prompt_length(
    log: RunLog, edges: Sequence[int], slos: SLO | SLOSet | str | None = None
) -> list[dict[str, Any]]:
    """Metrics by prompt length: one mean over short and long prompts describes neither.

    Rows for [0, edges[0]), [edges[0], edges[1]), ..., [edges[-1], no end), each with from, to
    (tokens; None: no end), n, finished, and ttft, tpot, itl, e2e as {p50, p90, p99, mean} in
    seconds or None. With ``slos`` also attainment (None if unavailable). The n add up to R.

    Raises:
        InputError: edges do not rise, or are not above 0.
    """
    if list(edges) != sorted(set(edges)) or (len(edges) and edges[0] <= 0):
        raise InputError(f"prompt lengths {list(edges)}: edges must rise and be above 0 tokens")
    judged = None
    if slos is not None and len(log) and not unavailable(log, slos):
        judged = good(log, slos)
    values = {name: metric(log, name) for name in ("ttft", "tpot", "itl", "e2e")}
    bucket = np.searchsorted(np.array(edges, dtype=int), log.requests["prompt_tokens"], "right")
    rows = []
    for b, (start, end) in enumerate(zip([0, *edges], [*edges, None], strict=True)):
        here = bucket == b
        row: dict[str, Any] = {"from": start, "to": end, "n": int(here.sum())}
        row["finished"] = int((here & log.finished).sum())
        for name, column in values.items():
            row[name] = None if column is None else quantiles(column[here])
        if slos is not None:
            hits = np.array([]) if judged is None else judged[here]
            row["attainment"] = float(hits.mean()) if hits.size else None
        rows.append(row)
    return rows


def cost_per_good_request(
    result: Goodput, price_per_gpu_hour: float, gpus: float | None = None
) -> float | None:
    """Price per good request, in the currency of ``price_per_gpu_hour``.

    ``gpus``: as in ``result`` unless given. None if goodput is unavailable, or if no request was
    good: no finite price buys one.

    Raises:
        InputError: a negative price.
    """
    if not 0 <= price_per_gpu_hour < np.inf:
        raise InputError(f"price {price_per_gpu_hour} per GPU hour: must be 0 or more, and finite")
    if not result.goodput:
        return None
    return price_per_gpu_hour * (result.gpus if gpus is None else gpus) / 3600 / result.goodput
