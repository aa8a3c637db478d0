"""suspects_of: a report in somebody's own words -> suspects, by the phrases that it uses.

Numbers from a server always beat words. This is for what people paste when they have no metrics:
an issue, a chat message. The phrases are data (symptoms.json), so a reader can see why.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

from minilab.judge.advisor.finding import HINT, STATE, Finding

Phrases = tuple[tuple[float, re.Pattern[str]], ...]

CERTAIN = 6.0
"""Weight at which words alone confirm as much as they can: a score of about 0.5."""


@cache
def _phrases() -> dict[str, Phrases]:
    place = files("minilab.judge.advisor") / "symptoms.json"
    data = json.loads(place.read_text("utf-8"))
    return {
        name: tuple((float(weight), re.compile(pattern)) for weight, pattern in patterns)
        for name, patterns in data.items()
        if name != "about"
    }


def suspects_of(report: str) -> list[Finding]:
    """Suspects of a report, the most likely first; "unknown" if no phrase is recognised."""
    text = _plain(report)
    found = []
    for name, phrases in _phrases().items():
        hits = [
            (weight, match[0]) for weight, pattern in phrases if (match := pattern.search(text))
        ]
        total = sum(weight for weight, _ in hits)
        if total < 1:
            continue
        evidence = [f"the report says: {words[:60]}" for _, words in sorted(hits, reverse=True)[:3]]
        found.append(Finding(name, 0.9 * total / (total + CERTAIN), HINT, evidence))
    if not found:
        return [Finding("unknown", 0.5, STATE, ["no phrase of the report is recognised"])]
    return sorted(found, key=lambda finding: -finding.score)


def _plain(report: str) -> str:
    """Lower case on one line; a semicolon ends each sentence, and nothing else is one."""
    text = " ".join(report.replace("*", "").replace(";", ",").lower().split())
    return re.sub(r"\.(?=\s|$)", ";", text)
