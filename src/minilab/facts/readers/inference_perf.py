"""inference-perf's ``per_request_lifecycle_metrics.json``: a list of requests, times in seconds.

What it measures, at the client: start, end and a time for each output token (all tokens of a chunk
share its time: gaps of 0). In its words tpot = (last token - first) / (tokens - 1), normalized
tpot = latency / tokens, itl = gaps, and for goodput the mean of a request's gaps; goodput is over
successes only. request_latency ends with the response, after the last token.

Missing: the server's side, the version, the rate asked for, and a duration of the file's own (first
arrival to last finish is used).

Its other files (``stage_N_lifecycle_metrics.json``, ``summary_lifecycle_metrics.json``) hold
quantiles and no request. Which requests met two limits at once cannot be told from the quantiles of
each, so ``read`` refuses them; ``summary`` gives what they do say.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.readers.build import Measured, Told, run_log
from minilab.facts.readers.node import MAX_CLOCK, Node
from minilab.facts.readers.source import Source
from minilab.facts.runlog import RunLog

FORMAT = "inference-perf"
TOOL = "inference-perf"
DEFINITIONS = {
    "ttft": "first token - request sent",
    "tpot": "(last token - first token) / (output tokens - 1)",
    "gap": "time between tokens, those of one chunk at the chunk's time",
    "finish": "last token; the tool's request_latency ends with the response",
}
_WORDS = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "ntpot": "normalized_time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
_QUANTILES = {"p50": "median", "p90": "p90", "p99": "p99", "mean": "mean"}


def matches(value: Any) -> bool:
    """Whether a JSON value looks like this tool's list of requests."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and {"start_time", "end_time", "info"} <= set(first)


def is_summary(value: Any) -> bool:
    """Whether a JSON value looks like this tool's summary of a stage or a run."""
    return isinstance(value, dict) and {"load_summary", "successes"} <= set(value)


def refuse_summary(report: Node) -> NoReturn:
    """Raise the InputError for a summary."""
    count = report.find("successes", "count")
    of = "" if count is None else f" of {count.count(1 << 62)} requests"
    report.refuse(
        "it has quantiles and no row per request, so nobody can tell how many met all limits",
        "set report.request_lifecycle.per_request: true and give "
        "per_request_lifecycle_metrics.json, or see readers.summary",
        given=f"an inference-perf summary{of}",
    )


def summary(report: Node) -> dict[str, Any]:
    """What a summary says: requests/s asked for and achieved, requests, failed, quantiles in s.

    {"requested", "achieved", "requests", "failed", and for each of ttft, tpot, ntpot, itl, e2e:
    {"p50", "p90", "p99", "mean"}}; None where the file has nothing. Of successes only.

    Raises:
        InputError: a value is not what it must be.
    """
    load, good = report.get("load_summary"), report.get("successes")
    failed = report.find("failures", "count")
    found: dict[str, Any] = {
        "requested": _number(load.find("requested_rate"), 1e9),
        "achieved": _number(load.find("achieved_rate"), 1e9),
        "requests": load.get("count").count(1 << 62),
        "failed": None if failed is None else failed.count(1 << 62),
    }
    for word, name in _WORDS.items():
        values = good.find("latency", name)
        found[word] = None
        if values is not None:
            found[word] = {q: _number(values.find(key), 1e7) for q, key in _QUANTILES.items()}
    return found


def _number(node: Node | None, high: float) -> float | None:
    return None if node is None else node.number(0.0, high, "a number")


def read(source: Source, report: Node) -> RunLog:
    """The run as a log, requests in the order of the file.

    Raises:
        InputError: a value is missing or cannot be.
    """
    requests = list(report.items())
    start = np.array([_clock(r, "start_time") for r in requests], dtype=np.float64)
    end = np.array([_clock(r, "end_time") for r in requests], dtype=np.float64)
    errors = [_error(r) for r in requests]
    times = [_token_times(r) for r in requests]
    first = [t[0] if t.size else np.nan for t in times]
    last = [t[-1] if t.size else e for t, e in zip(times, end.tolist(), strict=True)]
    measured = Measured(
        start=start,
        ttft=np.array(first, dtype=np.float64) - start,
        last=np.array(last, dtype=np.float64) - start,
        prompt=np.array([_prompt(r) for r in requests], dtype=np.int64),
        tokens=np.array(
            [_output(r, e) for r, e in zip(requests, errors, strict=True)], dtype=np.int64
        ),
        status=["finished" if error is None else "failed" for error in errors],
        rows=[np.diff(t) for t in times],
        errors=[error or "" for error in errors],
    )
    return run_log(source, measured, Told(FORMAT, TOOL, None, DEFINITIONS))


def _clock(request: Node, name: str) -> float:
    return request.get(name).number(-MAX_CLOCK, MAX_CLOCK)


def _error(request: Node) -> str | None:
    node = request.find("error")
    if node is None:
        return None
    told = node.find("error_msg") if isinstance(node.value, dict) else node
    return "failed" if told is None else told.text()


def _token_times(request: Node) -> FloatArray:
    """When each token came; the place of the list moved once."""
    node = _info(request, "response_metrics", "output_token_times")
    node = _info(request, "output_token_times") if node is None else node
    if node is None:
        return np.zeros(0)
    times = node.numbers(-MAX_CLOCK, MAX_CLOCK)
    for i in (np.flatnonzero(np.diff(times) < 0) + 1)[:1].tolist():
        Node(node.file, f"{node.place}[{i}]", float(times[i])).refuse(
            f"must not be before the token before it, {times[i - 1]!r}"
        )
    return times


def _info(request: Node, *names: str) -> Node | None:
    return request.find("info", *names)


def _prompt(request: Node) -> int:
    node = _info(request, "request_metrics", "text", "input_tokens")
    node = _info(request, "input_tokens") if node is None else node
    return 0 if node is None else node.count()


def _output(request: Node, error: str | None) -> int:
    """Tokens; needed of a completed request: as 0 it would pass limits on the time between."""
    node = _info(request, "response_metrics", "output_tokens")
    node = _info(request, "output_tokens") if node is None else node
    if node is None:
        if error is None:
            request.get("info").refuse("a completed request must have output_tokens")
        return 0
    return node.count()
