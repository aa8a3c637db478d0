"""aiperf's ``profile_export.jsonl``: one request a line; metrics carry their unit, clocks are ns.

What it measures, at the client: time_to_first_token until the first chunk with content,
inter_chunk_latency (a list) between chunks with content, request_latency until the last such
chunk. Its inter_token_latency is (latency - ttft) / (tokens - 1): tpot in our words. Its goodput
takes any metric; a request that has no such metric (one token has no inter_token_latency) is not
good; the share is good / (completed + failed).

Missing: the server's side, the version, the rate asked for, and a duration of the file's own (first
arrival to last finish is used). Requests of the warm-up phase are left out, as the tool does
(meta["warmup_requests"] says how many). A cancelled request is "aborted".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.readers.build import Measured, Told, run_log
from minilab.facts.readers.node import MAX_SPAN, Node
from minilab.facts.readers.source import Source
from minilab.facts.runlog import RunLog

FORMAT = "aiperf"
TOOL = "aiperf profile"
DEFINITIONS = {
    "ttft": "first chunk with content - request sent",
    "tpot": "(last chunk - first chunk) / (output tokens - 1); the tool calls it "
    "inter_token_latency",
    "gap": "time between chunks, not tokens (inter_chunk_latency); tokens that share a chunk have "
    "gaps of 0",
    "finish": "last chunk with content",
}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}
MAX_NS = 1 << 62


@dataclass(frozen=True)
class _Request:
    start_ns: int
    ttft: float
    last: float
    prompt: int
    tokens: int
    status: str
    error: str
    row: FloatArray


def matches(value: Any) -> bool:
    """Whether a JSON value looks like a record of this tool."""
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return False
    return "request_start_ns" in value["metadata"]


def read(source: Source, records: list[Node]) -> RunLog:
    """The run as a log, requests in the order of their start.

    Raises:
        InputError: a line is no record of a request, or a value cannot be.
    """
    phases = [record.get("metadata").find("benchmark_phase") for record in records]
    measured = [
        record
        for record, phase in zip(records, phases, strict=True)
        if phase is None or phase.text() != "warmup"
    ]
    requests = sorted((_request(record) for record in measured), key=lambda r: r.start_ns)
    first = requests[0].start_ns if requests else 0
    extra = {"warmup_requests": len(records) - len(measured), "start_ns": first}
    log = Measured(
        # ns as whole numbers: as seconds since 1970 they would lose 0.2 microseconds
        start=np.array([(r.start_ns - first) / 1e9 for r in requests], dtype=np.float64),
        ttft=np.array([r.ttft for r in requests], dtype=np.float64),
        last=np.array([r.last for r in requests], dtype=np.float64),
        prompt=np.array([r.prompt for r in requests], dtype=np.int64),
        tokens=np.array([r.tokens for r in requests], dtype=np.int64),
        status=[r.status for r in requests],
        rows=[r.row for r in requests],
        errors=[r.error for r in requests],
    )
    return run_log(source, log, Told(FORMAT, TOOL, None, DEFINITIONS, extra=extra))


def _request(record: Node) -> _Request:
    metadata, error = record.get("metadata"), record.find("error")
    start = metadata.get("request_start_ns").count(MAX_NS)
    status = "finished"
    if error is not None:
        status = "failed"
    cancelled = metadata.find("was_cancelled")
    if cancelled is not None and cancelled.value is True:
        status = "aborted"
    if status != "finished":
        end = metadata.find("request_end_ns")
        last = np.nan if end is None else _span(end, start)
        why = "" if error is None or error.find("message") is None else error.get("message").text()
        prompt = _tokens(record, "input_sequence_length", "error_isl")
        return _Request(start, np.nan, last, prompt or 0, 0, status, why, np.zeros(0))
    latency, ttft = _time(record, "request_latency"), _time(record, "time_to_first_token")
    tokens = _tokens(record, "output_sequence_length", "output_token_count")
    if latency is None or tokens is None:
        record.get("metrics").refuse(
            "a completed request must have request_latency and output_sequence_length",
            "let aiperf count tokens, and export its records",
        )
    prompt = _tokens(record, "input_sequence_length") or 0
    row = _chunks(record)
    return _Request(
        start, np.nan if ttft is None else ttft, latency, prompt, tokens, status, "", row
    )


def _span(end: Node, start_ns: int) -> float:
    ns = end.count(MAX_NS) - start_ns
    if not 0 <= ns <= MAX_SPAN * 1e9:
        end.refuse(f"must be within {MAX_SPAN:g} s after request_start_ns, {start_ns}")
    return ns / 1e9


def _metric(record: Node, name: str) -> tuple[Node, float] | None:
    """The value of a metric and the factor to seconds."""
    metric = record.find("metrics", name)
    if metric is None or metric.find("value") is None:
        return None
    unit = metric.get("unit")
    factor = UNITS.get(unit.text())
    if factor is None:
        unit.refuse(f"must be one of {', '.join(UNITS)}")
    return metric.get("value"), factor


def _time(record: Node, name: str) -> float | None:
    found = _metric(record, name)
    if found is None:
        return None
    value, factor = found
    return value.number(0.0, MAX_SPAN / factor, "a time in its unit") * factor


def _chunks(record: Node) -> FloatArray:
    found = _metric(record, "inter_chunk_latency")
    if found is None:
        return np.zeros(0)
    value, factor = found
    return np.asarray(value.numbers(0.0, MAX_SPAN / factor) * factor, dtype=np.float64)


def _tokens(record: Node, *names: str) -> int | None:
    for name in names:
        value = record.find("metrics", name, "value")
        if value is not None:
            return int(value.number(0, 1e7, "tokens"))
    return None
