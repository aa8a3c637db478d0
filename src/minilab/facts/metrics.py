"""The metric dictionary: what ttft, tpot, itl, stall, e2e and queue mean here, and elsewhere.

One word has several meanings among benchmark tools, and a table that mixes them compares nothing.
So the definitions are data: pages print them, ``metric`` computes them, SLOs refer to them.
Import from ``facts.slo``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
ITL_QUANTILE = 0.99


class Metric(NamedTuple):
    """One word of the dictionary."""

    name: str
    unit: str
    definition: str
    elsewhere: str
    needs: tuple[str, ...]
    """Request columns without which it is unavailable."""
    between_tokens: bool
    """About the time between tokens: a request with one output token has none, and passes."""
    largest: float
    """A bare SLO above this many seconds is taken for milliseconds and refused."""


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(
            "ttft", "s", "first token - arrival, the wait in the queue included",
            "TTFT everywhere; vLLM bench: first non-empty chunk; aiperf: first content chunk; "
            "guidellm and vLLM's --goodput: in ms",
            ("arrival", "first_token"), False, 60.0,
        ),
        Metric(
            "tpot", "s", "(finish - first token) / (output tokens - 1), per request; it averages "
            "a stall away",
            "vLLM and SGLang bench: TPOT; aiperf: inter_token_latency; Ray llmperf and guidellm "
            "divide by N and include the first token",
            ("first_token", "finish"), True, 5.0,
        ),
        Metric(
            "itl", "s", "the 99th percentile (linear) of the request's own gaps between tokens",
            "vLLM bench's ITL pools the gaps of all requests ('gap' here), one per chunk; "
            "aiperf: inter_chunk_latency; SGLang divides a chunk's gap over its tokens",
            (), True, 5.0,
        ),
        Metric(
            "stall", "s", "the request's largest gap between two tokens",
            "rarely reported; guidellm keeps no gaps, so there it is unavailable",
            (), True, 60.0,
        ),
        Metric(
            "e2e", "s", "finish - arrival, of finished requests",
            "vLLM and SGLang bench: e2el; inference-perf: latency",
            ("arrival", "finish"), False, 3600.0,
        ),
        Metric(
            "queue", "s", "first scheduled - arrival",
            "vllm:request_queue_time_seconds, sglang:queue_time_seconds; unknown to clients",
            ("arrival", "scheduled"), False, 60.0,
        ),
    )
}  # fmt: skip
"""The words in the order of reports. Times in seconds, failed requests have no e2e and no tpot."""


def closest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: ", did you mean 'ttft'" or nothing."""
    match = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f", did you mean {match[0]!r}" if match else ""


def available(log: RunLog, name: str) -> bool:
    """Whether the log can tell this metric at all (a failed request may still have none).

    Raises:
        InputError: no such metric.
    """
    if name not in METRICS:
        raise InputError(
            f"metric {name!r}: unknown{closest(name, METRICS)}; known: {', '.join(METRICS)}"
        )
    needs = METRICS[name].needs
    return all(_recorded(log, column) for column in needs) if needs else log.gaps is not None


def metric(log: RunLog, name: str) -> FloatArray | None:
    """One number of seconds per request, float64[R], NaN for a request that has none.

    None if the log cannot say: no gaps for itl and stall, or a time that was recorded for no
    finished request. Never 0 in its place.

    Raises:
        InputError: no such metric.
    """
    if not available(log, name):
        return None
    if log.gaps is not None and name == "itl":
        return log.gaps.per_request_quantile(ITL_QUANTILE)
    if log.gaps is not None and name == "stall":
        return log.gaps.per_request_max()
    columns = log.requests
    if name == "ttft":
        return columns["first_token"] - columns["arrival"]
    if name == "queue":
        return columns["scheduled"] - columns["arrival"]
    if name == "e2e":
        return np.where(log.finished, columns["finish"] - columns["arrival"], np.nan)
    has = log.finished & (columns["output_tokens"] > 1)
    span = columns["finish"] - columns["first_token"]
    return np.where(has, span / np.maximum(columns["output_tokens"] - 1, 1), np.nan)


def _recorded(log: RunLog, column: str) -> bool:
    """Known for a finished request; if none finished, nothing says that it was not recorded."""
    finished = log.finished
    return not finished.any() or not np.isnan(log.requests[column][finished]).all()


def quantiles(values: FloatArray | None) -> dict[str, float] | None:
    """p50, p90, p99 (linear) and mean of the values that are not NaN; None if there is none."""
    if values is None or np.isnan(values).all():
        return None
    values = values[~np.isnan(values)]
    found = np.quantile(values, list(QUANTILES.values())).tolist()
    return {**dict(zip(QUANTILES, found, strict=True)), "mean": float(values.mean())}


def summary(log: RunLog) -> dict[str, Any]:
    """Each metric's quantiles over the requests that have it, and "gap", all gaps pooled.

    For JSON: {"ttft": {"p50", "p90", "p99", "mean"} in seconds, or None if unavailable, ...}.
    "gap" is what vLLM's benchmark calls ITL: a request of 1,000 tokens weighs 1,000 times as much
    there as one of 2 tokens; "itl" takes each request's own p99 first.
    """
    found: dict[str, Any] = {name: quantiles(metric(log, name)) for name in METRICS}
    found["gap"] = None
    if log.gaps is not None and log.gaps.counts().any():
        pooled = log.gaps.pooled_quantiles(list(QUANTILES.values())).tolist()
        found["gap"] = {
            **dict(zip(QUANTILES, pooled, strict=True)),
            "mean": log.gaps.pooled_mean(),
        }
    return found
