"""guidellm's JSON report (``--outputs json``): one benchmark per load, times in seconds since 1970.

What it measures, at the client: first and last token of each request. In its words ttft is in ms;
time_per_output_token_ms = (last token - start) / tokens, which includes the first token's time;
inter_token_latency_ms = (last - first) / (tokens - 1), which is tpot in our words, and which its
own goodput key tpot_ms is held against. request_latency ends with the stream, after the last token.

Missing: every time between the first and the last token. There is no list of gaps, so itl and stall
are unavailable, never passed. Requests cut off at the end ("incomplete") are "aborted"; the tool
leaves them out. The wait for its scheduler to send stands in meta["client_queue"]. A file with a
sample of its requests only is refused: its goodput would be that of the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.readers.build import Measured, Told, run_log
from minilab.facts.readers.node import MAX_CLOCK, Node
from minilab.facts.readers.source import Source
from minilab.facts.runlog import RunLog

FORMAT = "guidellm"
TOOL = "guidellm benchmark"
VERSIONS = (1, 2)
"""Versions of the report (metadata.version) that can be read."""
DEFINITIONS = {
    "ttft": "first token - request sent",
    "tpot": "(last token - first token) / (output tokens - 1); the tool calls it "
    "inter_token_latency, its own time_per_output_token includes the first token",
    "gap": "not in the file",
    "finish": "last token; the tool's request_latency ends with the stream",
}
STATUS = {"successful": "finished", "errored": "failed", "incomplete": "aborted"}


def matches(value: Any) -> bool:
    """Whether a JSON value looks like a report of this tool."""
    return isinstance(value, dict) and isinstance(value.get("benchmarks"), list)


def runs(report: Node) -> list[Node]:
    """The benchmarks of a report, one per load.

    Raises:
        InputError: the report is of a version that is not known.
    """
    version = report.find("metadata", "version")
    if version is not None and version.value not in VERSIONS:
        version.refuse(
            f"this reader knows report versions {VERSIONS[0]} to {VERSIONS[-1]}",
            "make the report with guidellm 0.8, or upgrade minilab",
        )
    return list(report.get("benchmarks").items())


def read(source: Source, report: Node, benchmark: Node) -> RunLog:
    """One benchmark as a log, requests in the order of their start.

    Raises:
        InputError: the report keeps only a sample of its requests, or a value is missing or cannot
            be.
    """
    lists = benchmark.get("requests")
    rows = [
        (status, request)
        for name, status in STATUS.items()
        if (group := lists.find(name)) is not None
        for request in group.items()
    ]
    _whole(benchmark, len(rows))
    start = np.array([_start(request) for _, request in rows], dtype=np.float64)
    order = np.argsort(start, kind="stable")
    rows, start = [rows[i] for i in order.tolist()], start[order]
    version = report.find("metadata", "guidellm_version")
    told = Told(
        FORMAT,
        TOOL,
        None if version is None else version.text(),
        DEFINITIONS,
        benchmark.get("duration").number(1e-9),
        _rate(benchmark),
        {"client_queue": _client_queue([request for _, request in rows], start)},
    )
    return run_log(source, _measured(rows, start), told)


def _measured(rows: list[tuple[str, Node]], start: FloatArray) -> Measured:
    def column(of: Callable[[Node], float]) -> FloatArray:
        return np.array([of(request) for _, request in rows], dtype=np.float64)

    cached = [request.find("cached_tokens") for _, request in rows]
    known = [node.count() for node in cached if node is not None]
    return Measured(
        start=start,
        ttft=column(lambda r: _time(r, "first_token_iteration", "first_iteration")) - start,
        last=column(
            lambda r: _time(r, "last_token_iteration", "last_iteration", "request_end")
        ) - start,
        prompt=np.array([_tokens(r, "prompt_tokens") for _, r in rows], dtype=np.int64),
        tokens=np.array(
            [_tokens(r, "output_tokens", s == "finished") for s, r in rows], dtype=np.int64
        ),
        status=[status for status, _ in rows],
        rows=None,
        cached=np.array(known, dtype=np.int64) if rows and len(known) == len(rows) else None,
        errors=[
            "" if (error := request.find("info", "error")) is None else error.text()
            for _, request in rows
        ],
    )  # fmt: skip


def _whole(benchmark: Node, rows: int) -> None:
    total = benchmark.find("metrics", "request_totals", "total")
    if total is not None and total.count(1 << 62) != rows:
        total.refuse(
            f"the file keeps {rows} of these requests; goodput needs all of them",
            "run guidellm again without a sample size",
        )


def _start(request: Node) -> float:
    """When it was sent; where it never was, when it was ready to be."""
    for name in ("request_start", "resolve_start", "dequeued", "queued"):
        node = request.get("info").get("timings").find(name)
        if node is not None:
            return node.number(0.0, MAX_CLOCK)
    return request.get("info").get("timings").get("request_start").number()


def _time(request: Node, *names: str) -> float:
    timings = request.get("info").get("timings")
    for name in names:
        node = timings.find(name)
        if node is not None:
            return node.number(0.0, MAX_CLOCK)
    return float("nan")


def _tokens(request: Node, name: str, needed: bool = False) -> int:
    node = request.find(name)
    if node is None:
        if needed:  # as 0 it would pass every limit on the time between tokens
            request.get(name).refuse(
                "a completed request must say how many tokens it got", "give guidellm a tokenizer"
            )
        return 0
    return node.count()


def _rate(benchmark: Node) -> float | None:
    node = benchmark.find("config", "strategy", "rate")
    return None if node is None else node.number(0.0, 1e9, "requests/s")


def _client_queue(requests: list[Node], start: FloatArray) -> dict[str, float] | None:
    """Seconds from a request's queueing in the client until it was sent."""
    queued = np.array([_time(request, "queued") for request in requests], dtype=np.float64)
    waited = (start - queued)[~np.isnan(queued)]
    if not waited.size:
        return None
    return {"mean": float(waited.mean()), "max": float(waited.max())}
