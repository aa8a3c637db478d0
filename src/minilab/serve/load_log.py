"""From replies to a RunLog: the client's view in the same form as a simulation's.

``arrival`` is when a request was due, not when the client got round to sending it: what the client
or its own limit held back is part of what a user waits for, and is reported beside it. ``queued``
is when it was sent. What the server did inside (scheduled, preempted) no client can see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.gaps import GapLists
from minilab.facts.readers.chunks import token_gaps
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.workload import Workload
from minilab.serve.load_client import Sent
from minilab.serve.load_reply import RUNNING, Reply
from minilab.sim.environment import versions

TOOL = "minilab load"
DEFINITIONS = {
    "ttft": "first chunk with a token - time the request was due",
    "tpot": "(last token - first token) / (output tokens - 1)",
    "gap": "time between tokens; k tokens of one chunk are one gap and k - 1 zeros",
    "finish": "last chunk with a token",
    "goodput": "failed, rejected and aborted requests are in the denominator",
}
MISSING = ("scheduled", "preemptions", "instance", "stages", "series")

SLOW_CLIENT = 0.010
"""Seconds: a lag (p99) below this is the operating system's, whatever the latencies."""

SLOW_SHARE = 0.1
"""A lag above this share of the median TTFT bends the result."""


def to_runlog(sent: Sent, work: Workload, meta: dict[str, Any] | None = None) -> RunLog:
    """The checked log of what was sent; ``meta`` is added to its own. Times from the first due."""
    replies = sent.replies
    columns = blank_requests(len(replies))
    first = np.array([reply.chunks[0][0] if reply.chunks else np.nan for reply in replies])
    zero = sent.start
    columns["id"][:] = [reply.request.id for reply in replies]
    columns["tenant"][:] = [reply.request.tenant for reply in replies]
    columns["slo_class"][:] = [reply.request.slo_class for reply in replies]
    columns["arrival"][:] = [reply.due - zero for reply in replies]
    columns["queued"][:] = [reply.sent - zero for reply in replies]
    columns["first_token"][:] = first - zero
    columns["finish"][:] = [reply.end - zero for reply in replies]
    columns["prompt_tokens"][:] = [
        reply.request.prompt_tokens if reply.prompt_tokens is None else reply.prompt_tokens
        for reply in replies
    ]
    columns["cached_tokens"][:] = [reply.cached_tokens or 0 for reply in replies]
    columns["status"][:] = [
        "aborted" if reply.status == RUNNING else reply.status for reply in replies
    ]
    tokens, gaps, chunks = _tokens_and_gaps(replies)
    columns["output_tokens"][:] = tokens
    about = {
        "tool": TOOL,
        "version": versions()["minilab"],
        "definitions": DEFINITIONS,
        "missing": list(MISSING),
        "workload_hash": work.hash(),
        "seed": work.seed,
        "data": work.source,
        "gpus": 1,
        "versions": versions(),
        **client_report(sent, work, chunks),
        **(meta or {}),
    }
    return RunLog(columns, gaps, None, about).check()


def client_report(sent: Sent, work: Workload, chunks: dict[str, Any]) -> dict[str, Any]:
    """What the client says of itself and of what it was told, for ``meta``."""
    replies = sent.replies
    lag = np.array([reply.sent - reply.ready for reply in replies])
    waited = np.array([reply.ready - reply.due for reply in replies])
    served = [reply for reply in replies if reply.status == "finished"]
    ttft = np.array([reply.chunks[0][0] - reply.due for reply in served])
    lag_p99 = _quantile(lag, 0.99)
    typical = float(np.median(ttft)) if ttft.size else 0.0
    slow = lag_p99 is not None and lag_p99 > max(SLOW_CLIENT, SLOW_SHARE * typical)
    errors = Counter(reply.error for reply in replies if reply.error)
    return {
        "arrivals": arrivals(replies),
        "client_lag": {"p50": _quantile(lag, 0.5), "p99": lag_p99, "max": _quantile(lag, 1.0)},
        "client_is_bottleneck": slow,
        "client_queue": {"p50": _quantile(waited, 0.5), "p99": _quantile(waited, 0.99)},
        "chunks": chunks,
        "lengths": _lengths(served),
        "errors": dict(errors.most_common(3)),
        "interrupted": sent.interrupted,
        "not_sent": len(work.requests) - len(replies),
    }


def arrivals(replies: Sequence[Reply]) -> dict[str, float | None]:
    """Requests per second asked for (when they were due) and achieved (when they were sent).

    ``variation`` is the standard deviation of the achieved gaps over their mean: near 1 for Poisson
    arrivals.
    """
    due = np.sort([reply.due for reply in replies])
    sent = np.sort([reply.sent for reply in replies if not np.isnan(reply.sent)])
    between = np.diff(sent)
    varied = between.size > 1 and between.mean() > 0
    return {
        "requested": _rate(due),
        "achieved": _rate(sent),
        "variation": float(between.std() / between.mean()) if varied else None,
    }


def _rate(times: FloatArray) -> float | None:
    span = float(times[-1] - times[0]) if times.size > 1 else 0.0
    return (times.size - 1) / span if span > 0 else None


def _quantile(values: FloatArray, q: float) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, q)) if known.size else None


def _lengths(served: Sequence[Reply]) -> dict[str, int]:
    """How many finished requests had just the lengths asked for, by the server's count."""
    counted = [reply for reply in served if reply.prompt_tokens is not None]
    return {
        "finished": len(served),
        "counted_by_server": len(counted),
        "prompt_as_asked": sum(r.prompt_tokens == r.request.prompt_tokens for r in counted),
        "output_as_asked": sum(r.output_tokens == r.request.output_tokens for r in counted),
    }


def _tokens_and_gaps(replies: Sequence[Reply]) -> tuple[list[int], GapLists, dict[str, Any]]:
    """Output tokens and gaps of each request, and how they were told.

    Where the server counted along in every chunk, each token is placed. Elsewhere a chunk is a
    token, and where the total says otherwise the readers' rule decides (``readers.chunks``).
    """
    tokens: list[int] = []
    rows: list[FloatArray] = []
    exact = 0
    for reply in replies:
        times = np.array([time for time, _ in reply.chunks])
        counts = [count for _, count in reply.chunks if count is not None]
        if reply.chunks and len(counts) == len(reply.chunks):
            exact += 1
            tokens.append(counts[-1])
            rows.append(_placed(times, np.diff(counts, prepend=0)))
            continue
        whole = reply.status == "finished" and reply.output_tokens is not None
        total = int(reply.output_tokens or 0) if whole else times.size
        tokens.append(total)
        rows.append(_by_rule(np.diff(times), total))
    told = {"streamed": True, "requests": len(replies), "placed_by_server_count": exact}
    return tokens, GapLists.of([row.tolist() for row in rows]), told


def _placed(times: FloatArray, brought: Any) -> FloatArray:
    """Gaps of the tokens, from each chunk's time and the number of tokens it brought."""
    return np.diff(np.repeat(times, brought))


def _by_rule(row: FloatArray, tokens: int) -> FloatArray:
    found, _ = token_gaps([row], np.array([tokens]), np.array([True]))
    return np.zeros(max(0, tokens - 1)) if found is None else found.values
