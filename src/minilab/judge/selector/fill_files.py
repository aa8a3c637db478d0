"""fill_from: the selector's settings from files: pages of /metrics, run logs, benchmark results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.judge.advisor.exposition import Scrape
from minilab.judge.advisor.names import START
from minilab.judge.advisor.sources import Sources
from minilab.judge.selector.filled import Filled, from_metrics, from_requests
from minilab.judge.selector.parameters import parameters
from minilab.judge.selector.tables import tables


def fill_from(names: Sequence[str], seconds: float | None = None) -> Filled:
    """What these files say: one run, or one or two pages of one server in order of time.

    ``seconds``: between the pages, or since the server's start for one page; without it the times
    of the files are taken, which a copy may have changed.

    Raises:
        InputError: a file cannot be read, or nothing in it can be.
    """
    sources = Sources()
    for name in names:
        sources.add(name)
    if sources.logs:
        filled = of_log(sources.logs[-1][1])
    elif sources.scrapes:
        pages = [page for _, page in sources.scrapes]
        filled = from_metrics(pages, _seconds(names, pages, seconds), tables())
        if seconds is None and "rate" in filled.values:
            filled.notes.append("rate by the files' times; where they were copied, give --seconds")
    else:
        why = "; ".join(sources.notes) or "neither metrics nor a run"
        raise InputError(f"--from: {why}; give a page of /metrics, a run log or a benchmark file")
    filled.notes += sources.notes
    filled.inside(parameters())
    return filled


def of_log(log: RunLog) -> Filled:
    """The settings behind a run, whoever recorded it."""
    columns = log.requests
    names = ("arrival", "prompt_tokens", "output_tokens", "cached_tokens")
    values = [columns[name].tolist() for name in names]
    rows = [row for row in zip(*values, log.finished.tolist(), strict=True) if row[0] == row[0]]
    return from_requests(rows, log.meta, tables())


def _seconds(names: Sequence[str], pages: Sequence[Scrape], given: float | None) -> float | None:
    """Seconds that the counters cover, where somebody knows."""
    if given is not None:
        return given
    times = [_written(name) for name in names]
    start, last = pages[-1].total(START), times[-1]
    if len(pages) > 1 and pages[0].total(START) == start:
        if times[0] is None or last is None:
            return None
        return last - times[0] if last - times[0] >= 1.0 else None
    return last - start if last is not None and start is not None else None


def _written(name: str) -> float | None:
    """When a file was written (s since 1970); None for an address."""
    try:
        return os.stat(name).st_mtime
    except OSError:
        return None


def as_dict(filled: Filled) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {
        "values": filled.values,
        "how": dict(filled.how),
        "unread": dict(filled.unread),
        "notes": filled.notes,
    }
