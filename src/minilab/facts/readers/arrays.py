"""The arrays that vLLM's and SGLang's benchmark clients write: one value per request sent.

Both hold a failed request as 0.0 in every array, which would pass any limit on latency; here it
gets the status "failed" and no times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray, IntArray
from minilab.facts.readers.node import MAX_CLOCK, Node

REQUIRED = ("input_lens", "output_lens", "ttfts", "itls", "errors")
SLACK = 1e-3
"""Seconds by which ttft and gaps may add up to more than the latency says."""


@dataclass(frozen=True)
class Arrays:
    """R requests in the order sent: seconds, tokens; ``start`` and ``latency`` None if absent."""

    prompt: IntArray
    tokens: IntArray
    ttft: FloatArray
    rows: list[FloatArray]
    errors: list[str]
    start: FloatArray | None
    latency: FloatArray | None
    failed: BoolArray

    @property
    def count(self) -> int:
        """R."""
        return self.ttft.size

    @property
    def sums(self) -> FloatArray:
        """ttft + the gaps of its chunks: when the last chunk came, float64[R] s."""
        return self.ttft + np.array([row.sum() for row in self.rows], dtype=np.float64)


def read_arrays(run: Node, details: str) -> Arrays:
    """The arrays of one run; ``details`` names the option that makes the tool write them.

    Raises:
        InputError: an array is absent or has another length, a value is no time or no count, or
            the gaps of a request add up to more than its latency.
    """
    way_out = f"the file has no value per request: run the benchmark again with {details}"
    nodes = {name: run.get(name, way_out) for name in REQUIRED}
    count = nodes["ttfts"].size()
    for node in nodes.values():
        node.size(count, "ttfts")
    ttft = nodes["ttfts"].numbers()
    tokens = nodes["output_lens"].counts()
    errors = nodes["errors"].texts()
    start, latency = _optional(run, "start_times", count), _optional(run, "latencies", count)
    failed = np.array([bool(error) for error in errors], dtype=np.bool_)
    nothing = (ttft == 0) & (tokens == 0) if latency is None else latency == 0
    found = Arrays(
        prompt=nodes["input_lens"].counts(),
        tokens=tokens,
        ttft=ttft,
        rows=[row.numbers() for row in nodes["itls"].items()],
        errors=errors,
        start=start,
        latency=latency,
        failed=failed | nothing,
    )
    if latency is not None:
        _consistent(run, found, latency)
    return found


def _optional(run: Node, name: str, count: int) -> FloatArray | None:
    node = run.find(name)
    if node is None:
        return None
    node.size(count, "ttfts")
    return node.numbers(-MAX_CLOCK, MAX_CLOCK) if name == "start_times" else node.numbers()


def _consistent(run: Node, found: Arrays, latency: FloatArray) -> None:
    """The last chunk ends the latency, give or take the stream's end: else units were mixed."""
    streamed = np.array([row.size > 0 for row in found.rows], dtype=np.bool_)
    low, high = found.sums - SLACK, 2 * found.sums + 1
    off = (latency < low) | (streamed & (latency > high))
    for r in np.flatnonzero(~found.failed & off)[:1].tolist():
        Node(run.file, f"{run.place}latencies[{r}]", float(latency[r])).refuse(
            f"must be ttfts[{r}] + the sum of itls[{r}], {found.sums[r]:g} s",
            "are the arrays of one run, and all in seconds?",
        )


def check_completed(run: Node, finished: int) -> None:
    """Refuse a file whose own count of completed requests is not what its arrays show."""
    node = run.find("completed")
    if node is not None and node.count() != finished:
        node.refuse(f"the arrays have {finished} requests without an error", "was the file edited?")


def rate_of(run: Node) -> float | None:
    """request_rate in requests/s; None for "inf" (all at once), "trace", or nothing."""
    node = run.find("request_rate")
    if node is None or isinstance(node.value, str) or node.value == float("inf"):
        return None
    return node.number(0.0, 1e9, "requests/s")
