"""One run in each tool's words: what it would print, by its own definition, in its own units.

The same words mean different numbers (``DEFINITIONS`` in ``compare``). Each function returns the
tool's headline fields under the tool's names, of the requests that finished, None where the log
cannot tell. ``slo`` (limits in seconds, for all requests) adds the tool's own goodput; it is None
where the tool has no key for a limit. Percentiles are numpy's linear ones, except guidellm's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.readers.judged import Limits, judge, limits_of
from minilab.facts.readers.sglang import NATIVE
from minilab.facts.readers.view import View, stats, step_stats
from minilab.facts.runlog import RunLog

_MS = 1e3


def as_vllm(log: RunLog, slo: Limits = None) -> dict[str, Any]:
    """``vllm bench serve``: ms; itl pools gaps between chunks; one token has tpot 0 for goodput.

    request_goodput is good requests per second; there is no share.
    """
    view = View.of(log)
    return {**_bench(view, view.chunk_gaps, "e2el"), **_bench_goodput(view, slo)}


def as_sglang(log: RunLog, slo: Limits = None) -> dict[str, Any]:
    """``sglang.bench_serving``: as vLLM, but a chunk of k tokens gives k itls of gap / k.

    So it does with its native backend; a log read from a run with another backend keeps the gaps
    between chunks. Where a log does not say which tokens shared a chunk, only the mean is known.
    The goodput share is of all requests sent.
    """
    view = View.of(log)
    backend = log.meta.get("backend") if log.meta.get("format") == "sglang" else NATIVE[0]
    gaps = view.spread_gaps() if backend in NATIVE else view.chunk_gaps
    found = _bench(view, gaps, "e2e_latency")
    if gaps is None and view.gaps is not None and view.gaps.size:
        found["mean_itl_ms"] = float(view.gaps.sum() / view.gaps.size) * _MS
    goodput = _bench_goodput(view, slo)
    rate, duration = goodput["request_goodput"], view.duration
    share = None if rate is None or duration is None else rate * duration / max(view.sent, 1)
    return {**found, **goodput, "goodput_share": share}


def as_aiperf(log: RunLog, slo: Limits = None) -> dict[str, Any]:
    """``aiperf profile``: ms; inter_token_latency is tpot, gaps are inter_chunk_latency.

    A request without a metric that has a limit (one token has no inter_token_latency) is not good.
    good_request_fraction is of completed and failed ones.
    """
    view = View.of(log)
    fields: dict[str, FloatArray | None] = {
        "time_to_first_token": view.ttft,
        "inter_token_latency": view.tpot,
        "inter_chunk_latency": view.chunk_gaps,
        "request_latency": view.e2e,
    }
    values = {"ttft": view.ttft, "tpot": view.tpot, "e2e": view.e2e}
    good = judge(values, limits_of(slo))
    hits = None if good is None else int((good == 1).sum())
    return {
        **{name: stats(values, _MS, mean="avg") for name, values in fields.items()},
        "request_count": view.completed,
        "error_request_count": view.sent - view.completed,
        "good_request_count": hits,
        "good_request_fraction": None if hits is None else hits / max(view.sent, 1),
        "goodput": _rate(hits, view.served_duration),
    }


def as_guidellm(log: RunLog, slo: Limits = None) -> dict[str, Any]:
    """``guidellm benchmark``: ms; tpot = (last token - start) / tokens, weighted by tokens.

    inter_token_latency is one mean per request, weighted by its tokens - 1: no gap is looked at.
    Percentiles are the value where the cumulated weight reaches q. The limit tpot is held against
    inter_token_latency; a request without it (one token) counts on neither side, a failed one is
    bad, one that was cut off ("aborted") is left out.
    """
    view = View.of(log)
    n = view.tokens
    each = None if view.e2e is None else np.where(n > 0, view.e2e / np.maximum(n, 1), np.nan)
    values = {"ttft": view.ttft, "tpot": view.tpot, "e2e": view.e2e}
    good = judge(values, limits_of(slo), missing=-1)
    hits = None if good is None else int((good == 1).sum())
    told = 0 if good is None else int((good >= 0).sum()) + view.failed
    return {
        "time_to_first_token_ms": step_stats(view.ttft, None, _MS),
        "time_per_output_token_ms": step_stats(each, n, _MS),
        "inter_token_latency_ms": step_stats(view.tpot, np.maximum(n - 1, 0), _MS),
        "request_latency": step_stats(view.e2e, None, 1.0),
        "slo_determined_requests": told,
        "slo_attainment": None if hits is None or not told else hits / told,
        "request_goodput": _rate(hits, view.duration),
    }


def as_inference_perf(log: RunLog, slo: Limits = None) -> dict[str, Any]:
    """``inference-perf``: seconds; ntpot = latency / tokens; itl pools gaps, 0 within a chunk.

    A request with fewer than two tokens has no ttft there, and is not good under a limit on it.
    The limit itl is held against the mean of a request's own gaps. Goodput is over successes only:
    a server that drops half of its requests is judged by the other half.
    """
    view = View.of(log)
    n, several = view.tokens, view.tokens > 1
    ttft = None if view.ttft is None else np.where(several, view.ttft, np.nan)
    ntpot = None if view.e2e is None else view.e2e / np.maximum(n, 1)
    fields = {
        "time_to_first_token": ttft,
        "time_per_output_token": view.tpot,
        "normalized_time_per_output_token": ntpot,
        "inter_token_latency": view.gaps,
        "request_latency": view.e2e,
    }
    values = {"ttft": ttft, "tpot": view.tpot, "e2e": view.e2e, "itl": view.mean_gaps}
    good = judge(values, limits_of(slo))
    hits = None if good is None else int((good == 1).sum())
    return {
        **{name: stats(column, 1.0, p50="median") for name, column in fields.items()},
        "count": view.completed,
        "failures": view.sent - view.completed,
        "good_requests": hits,
        "goodput_percentage": None
        if hits is None or not view.completed
        else 100 * hits / view.completed,
        "request_goodput": _rate(hits, view.served_duration),
    }


def as_llmperf(log: RunLog, slo: Limits = None) -> dict[str, Any]:
    """Ray's ``llmperf``: seconds; inter_token_latency_s = latency / tokens; it knows no goodput."""
    view, n = View.of(log), np.maximum(View.of(log).tokens, 1)
    limits_of(slo)
    each = None if view.e2e is None else np.where(view.tokens > 0, view.e2e / n, 0.0)
    return {
        "ttft_s": stats(view.ttft, 1.0),
        "inter_token_latency_s": stats(each, 1.0),
        "end_to_end_latency_s": stats(view.e2e, 1.0),
        "num_requests_started": view.sent,
        "error_rate": (view.sent - view.completed) / view.sent if view.sent else None,
    }


def _bench(view: View, gaps: FloatArray | None, e2e: str) -> dict[str, Any]:
    """The fields that vLLM's and SGLang's clients have in common."""
    found: dict[str, Any] = {
        "completed": view.completed,
        "duration": view.duration,
        "request_throughput": _rate(view.completed, view.duration),
        "output_throughput": _rate(int(view.tokens.sum()), view.duration),
    }
    for name, values in (("ttft", view.ttft), ("tpot", view.tpot), ("itl", gaps), (e2e, view.e2e)):
        told = stats(values, _MS) or {}
        for field, key in (("mean", "mean"), ("median", "p50"), ("std", "std"), ("p90", "p90"),
                           ("p99", "p99")):  # fmt: skip
            found[f"{field}_{name}_ms"] = told.get(key)
    return found


def _bench_goodput(view: View, slo: Limits) -> dict[str, float | None]:
    tpot = None if view.tpot is None else np.where(view.tokens > 1, view.tpot, 0.0)
    good = judge({"ttft": view.ttft, "tpot": tpot, "e2e": view.e2e}, limits_of(slo))
    return {"request_goodput": None if good is None else _rate(int((good == 1).sum()),
                                                               view.duration)}  # fmt: skip


def _rate(count: int | None, duration: float | None) -> float | None:
    return None if count is None or not duration else count / duration
