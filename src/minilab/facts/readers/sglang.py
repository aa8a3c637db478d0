"""``sglang.bench_serving --output-details``: JSON lines, one run a line, times in seconds.

What it measures, at the client: ttft until the first chunk with text, itls. With the native
backend (/generate) a chunk of k tokens is written as k values of gap / k, which hides a stall k
times: equal neighbours are put together again, one gap and k - 1 zeros. With the OpenAI backends
an itl is the time between chunks. Failed requests stand in the arrays as 0.0.

Missing: start times and latencies. So arrivals are unknown: every request is on a clock of its own
that starts at 0 (meta["clock"]), the last token stands at ttft + sum(itls), and rates are per
second of the file's own duration. A request answered without any text has ttft 0.0 there and
counts as completed; here it failed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minilab.facts.readers.arrays import Arrays, check_completed, rate_of, read_arrays
from minilab.facts.readers.build import Measured, Told, run_log
from minilab.facts.readers.chunks import unsmoothed
from minilab.facts.readers.node import Node
from minilab.facts.readers.source import Source
from minilab.facts.runlog import RunLog

FORMAT = "sglang"
TOOL = "sglang bench_serving"
NATIVE = ("sglang", "sglang-native")
"""Backends that spread a chunk's time over its tokens."""
DEFINITIONS = {
    "ttft": "first chunk with text - request sent",
    "tpot": "(last chunk - first chunk) / (output tokens - 1); the tool's own ends at the "
    "stream's end",
    "gap": "time between chunks, not tokens; tokens that share a chunk have gaps of 0",
    "finish": "ttft + all gaps",
    "arrival": "unknown; each request starts at 0",
}
_OWN = ("total_output_tokens_retokenized", "mean_e2e_latency_ms", "random_range_ratio")


def matches(value: Any) -> bool:
    """Whether a JSON value looks like a run of this tool."""
    return isinstance(value, dict) and any(name in value for name in _OWN)


def read(source: Source, run: Node) -> RunLog:
    """The run as a log.

    Raises:
        InputError: no value per request, or one that cannot be.
    """
    found = read_arrays(run, "--output-details")
    check_completed(run, int((~found.failed).sum()))
    backend = "" if (node := run.find("backend")) is None else node.text()
    untold = ~found.failed & (found.ttft == 0)  # answered, but no text ever came
    some = bool(untold.any() and not untold[~found.failed].all())
    failed = found.failed | untold if some else found.failed
    extra = {"backend": backend, "without_text": int(untold.sum()) if some else 0}
    version = run.find("server_info", "version")
    told = Told(
        FORMAT,
        TOOL,
        None if version is None else version.text(),
        DEFINITIONS,
        run.get("duration").number(1e-9),
        rate_of(run),
        extra,
    )
    return run_log(source, _measured(run, found, failed.tolist(), backend in NATIVE), told)


def _measured(run: Node, found: Arrays, failed: list[bool], native: bool) -> Measured:
    cached = run.find("cached_tokens")
    if cached is not None:
        cached.size(found.count, "ttfts")
    last = found.sums if found.latency is None else found.latency
    return Measured(
        start=found.start,
        ttft=np.where(found.ttft > 0, found.ttft, np.nan),
        last=np.where(failed, np.nan, np.where(last > 0, last, np.nan)),
        prompt=found.prompt,
        tokens=found.tokens,
        status=["failed" if gone else "finished" for gone in failed],
        rows=[unsmoothed(row) for row in found.rows] if native else found.rows,
        cached=None if cached is None else cached.counts(),
        errors=found.errors,
        first_shares=native,
    )
