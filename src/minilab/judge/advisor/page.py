"""What the page asks of the advisor: pasted text in, JSON text out. Runs under MicroPython."""

import json
from typing import Any

from minilab.judge.advisor.diagnose import diagnose
from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.signals import read_signals
from minilab.judge.advisor.window import Window


class Page:
    """The advisor behind the paste box; nothing of what is pasted leaves the page."""

    def __init__(self, table: str) -> None:
        self.rows = json.loads(table)["rows"]

    def advise(self, given: str) -> str:
        """``given``: JSON with before, after (text of /metrics, before may be empty) and slo."""
        asked = json.loads(given)
        pages = [read_scrape(text) for text in (asked["before"], asked["after"]) if text.strip()]
        if not pages:
            return json.dumps({"suspects": [], "unknown": [], "notes": ["nothing was pasted"]})
        signals = read_signals(Window(pages), asked["slo"], "server")
        found = diagnose([signals])
        return json.dumps(
            {
                "suspects": [self._told(finding) for finding in found.suspects],
                "unknown": [list(item) for item in found.unknown],
                "notes": signals.notes,
            }
        )

    def _told(self, finding: Any) -> dict[str, Any]:
        named = [row for row in self.rows if finding.id in row["suspects"]]
        first = [row for row in named if row["suspects"][0] == finding.id]
        row = (first or named)[0]
        return {
            "id": finding.id,
            "score": finding.score,
            "kind": finding.kind,
            "evidence": finding.evidence,
            "check": row["check"],
            "actions": row["actions"],
            "dont": row["dont"],
            "page": row["page"],
        }
