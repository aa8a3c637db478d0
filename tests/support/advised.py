"""Advised: pages of several servers for the advisor, and the suspects that it names."""

from __future__ import annotations

from minilab.judge.advisor.advise import Advice
from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.sources import Sources

SLO = {"ttft": 1.0, "itl": 0.1}
"""Limits in seconds that a server with little to do meets."""


def pages(*texts: str) -> Sources:
    """Pages of /metrics as if read from server0, server1 and so on."""
    sources = Sources()
    for at, text in enumerate(texts):
        sources.scrapes.append((f"server{at}", read_scrape(text)))
    return sources


def ids(advice: Advice) -> list[str]:
    """The ids of the suspects, the first one first."""
    return [finding.id for finding in advice.diagnosis.suspects]
