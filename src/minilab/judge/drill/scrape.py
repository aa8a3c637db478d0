"""scrape: a simulated run as the pages of /metrics that its servers would have shown.

Counters and histograms cover the run; gauges are those of the moment at which the arrivals are half
through, as if somebody had looked then.
"""

from __future__ import annotations

import numpy as np

from minilab.facts.runlog import RunLog
from minilab.judge.advisor.expose import expose
from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.sources import Sources

START = 1.79e9
"""Process start of the first server, seconds since 1970; each further one started 60 s later."""

Pages = dict[str, list[str]]
"""Role of a server ("", replica, prefill, decode) -> pages, one per server."""


def scrape(log: RunLog, num_prefill: int, model: str) -> Pages:
    """Pages by role. ``num_prefill``: instances of the prefill pool, which come first; 0: whole."""
    known = sorted({int(at) for at in log.requests["instance"] if at >= 0})
    if num_prefill:
        prefill, decode = pools(log)
        gauges = gauges_of(log, known[0])
        return {
            "prefill": [expose(prefill, start=START, model=model)],
            "decode": [expose(decode, start=START + 60, model=model, during=gauges)],
        }
    role = "replica" if len(known) > 1 else ""
    pages = [
        expose(
            log.select(log.requests["instance"] == at),
            start=START + 60 * at,
            model=model,
            during=gauges_of(log, at),
        )
        for at in known
    ]
    return {role: pages}


def gauges_of(log: RunLog, instance: int) -> dict[str, float]:
    """Running, waiting and KV usage of one instance when half of the requests had arrived."""
    series = log.series
    if series is None:
        return {}
    half = float(np.median(log.requests["arrival"]))
    mine = (series["instance"] == instance) & (series["t"] <= half)
    if not mine.any():
        return {}
    last = int(np.flatnonzero(mine)[-1])
    return {
        "num_requests_running": float(series["running"][last]),
        "num_requests_waiting": float(series["waiting"][last]),
        "kv_cache_usage_perc": float(series["kv_usage"][last]),
    }


def pools(log: RunLog) -> tuple[RunLog, RunLog]:
    """What each pool of a split knows of its requests: the prompt side, the answering side."""
    sender = {name: column.copy() for name, column in log.requests.items()}
    receiver = {name: column.copy() for name, column in log.requests.items()}
    sender["output_tokens"] = np.minimum(sender["output_tokens"], 1)
    sender["finish"] = sender["first_token"].copy()
    for name in ("decode", "transfer"):
        sender[name] = np.full(len(log), np.nan)
    receiver["queue"] = receiver["decode_wait"].copy()
    receiver["prefill"] = np.full(len(log), np.nan)
    return RunLog(sender, None, None, log.meta), RunLog(receiver, log.gaps, None, log.meta)


def as_sources(pages: Pages) -> dict[str, Sources]:
    """The pages as the advisor takes them."""
    found = {}
    for role, texts in pages.items():
        sources = Sources()
        for at, text in enumerate(texts):
            sources.scrapes.append((f"{role or 'server'} {at}", read_scrape(text)))
        found[role] = sources
    return found
