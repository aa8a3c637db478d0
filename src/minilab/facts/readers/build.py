"""From what a client measured to a RunLog: the same steps for every tool.

A reader fills a ``Measured``, durations on each request's own clock, and says in ``Told`` what the
tool means by its words. Here they become columns, gaps and the log's meta.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray, IntArray
from minilab.facts.errors import InputError
from minilab.facts.readers.chunks import MAX_GAPS, token_gaps
from minilab.facts.readers.source import Source
from minilab.facts.runlog import RunLog, blank_requests

NEVER_TOLD = ("queued", "scheduled", "preemptions", "instance", "stages", "series")
"""What no client can see, whatever it writes."""


@dataclass
class Measured:
    """R requests. Seconds as float64, NaN where nothing was measured.

    ``start`` is on the tool's clock, None if the file has no start times; ``ttft``, ``last`` (last
    token) count from a request's own start. ``tokens`` and ``prompt`` are int64. ``rows``: seconds
    between chunks of each request; None if the file has none.
    """

    start: FloatArray | None
    ttft: FloatArray
    last: FloatArray
    prompt: IntArray
    tokens: IntArray
    status: list[str]
    rows: Sequence[FloatArray] | None
    cached: IntArray | None = None
    errors: list[str] = field(default_factory=list)
    first_shares: bool = False


@dataclass(frozen=True)
class Told:
    """What the file says about itself, in meta as it stands.

    ``definitions``: what the tool's words mean here; ``requested``: the arrival rate asked for in
    requests/s, None if none was (or infinite); ``extra``: further facts of this tool's file.
    """

    format: str
    tool: str
    version: str | None
    definitions: dict[str, str]
    duration: float | None = None
    requested: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def run_log(source: Source, measured: Measured, told: Told) -> RunLog:
    """The checked log. Times start at the first request (meta["clock"] has the tool's own time)."""
    finished = np.array([status == "finished" for status in measured.status], dtype=np.bool_)
    tokens = np.where(finished, measured.tokens, 0)
    ttft = np.where(finished & (tokens > 0), measured.ttft, np.nan)
    start, clock = _starts(measured)
    columns = blank_requests(len(finished))
    columns["arrival"], columns["first_token"] = start, start + ttft
    columns["finish"] = start + measured.last
    columns["prompt_tokens"], columns["output_tokens"] = measured.prompt, tokens
    columns["status"][:] = measured.status
    if measured.cached is not None:
        columns["cached_tokens"] = measured.cached
    gaps, chunks = None, None
    if measured.rows is not None:
        if tokens.sum() > MAX_GAPS:
            raise InputError(
                f"{source.path}: {tokens.sum()} output tokens; must be at most {MAX_GAPS}; "
                f"give a shorter run"
            )
        gaps, chunks = token_gaps(measured.rows, tokens, finished, measured.first_shares)
    meta = {
        "format": told.format,
        "tool": told.tool,
        "version": told.version,
        "definitions": told.definitions,
        "missing": _missing(measured, ttft, finished, gaps is None),
        "arrivals": _arrivals(measured.start, told.requested),
        "clock": clock,
        "chunks": chunks,
        "errors": dict(Counter(_line(error) for error in measured.errors if error).most_common(3)),
        "data": {
            "name": Path(source.path).name,
            "kind": "real",
            "origin": told.tool,
            "sha256": source.sha256,
        },
        **told.extra,
    }
    if told.duration is not None:
        meta["duration"] = told.duration
    log = RunLog(columns, gaps, None, meta)
    try:
        return log.check()
    except InputError as error:
        raise InputError(f"{source.path}: {error}") from error


def _starts(measured: Measured) -> tuple[FloatArray, dict[str, Any]]:
    """Arrivals from the first one on; each request on a clock of its own if there are none."""
    if measured.start is None:
        return np.zeros(measured.ttft.size), {"of": "each request", "origin": None}
    known = measured.start[~np.isnan(measured.start)]
    origin = float(known.min()) if known.size else 0.0
    return measured.start - origin, {"of": "the run", "origin": origin}


def _arrivals(start: FloatArray | None, requested: float | None) -> dict[str, float | None]:
    """Requested and achieved rate (requests/s), and the achieved gaps' coefficient of variation.

    Achieved is (n - 1) / (last start - first start). A Poisson process has a variation near 1.
    """
    found: dict[str, float | None] = {"requested": requested, "achieved": None, "variation": None}
    if start is None or start.size < 2 or not np.ptp(start) > 0:
        return found
    between = np.diff(np.sort(start))
    found["achieved"] = float(between.size / between.sum())
    if between.size > 1:
        found["variation"] = float(between.std() / between.mean())
    return found


def _missing(measured: Measured, ttft: FloatArray, finished: BoolArray, no_gaps: bool) -> list[str]:
    """What the dictionary asks for and the file does not hold."""
    absent = {
        "arrival": measured.start is None,
        "first_token": bool(finished.any() and np.isnan(ttft[finished]).all()),
        "finish": bool(finished.any() and np.isnan(measured.last[finished]).all()),
        "cached_tokens": measured.cached is None,
        "gaps": no_gaps,
    }
    return [*(name for name, gone in absent.items() if gone), *NEVER_TOLD]


def _line(error: str) -> str:
    """The last line of an error (of a traceback: what it says), short."""
    lines = error.strip().splitlines() or [error]
    return lines[-1].strip()[:120]
