"""What the page asks to set its sliders from a pasted text. Runs under MicroPython."""

import json
from typing import Any

from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.names import START
from minilab.judge.selector.filled import Filled, from_lines, from_metrics


class Page:
    """The box that reads metrics and run logs; nothing of what is pasted leaves the page."""

    def __init__(self, tables: str, parameters: str) -> None:
        self.tables = json.loads(tables)
        self.parameters = json.loads(parameters)

    def fill(self, given: str) -> str:
        """``given``: JSON with before, after (text; before may be empty), seconds that the
        counters cover (null: since the server's start), and now (s since 1970; when the last page
        was read)."""
        asked = json.loads(given)
        texts = [text for text in (asked["before"], asked["after"]) if text.strip()]
        filled = fill(texts, asked["seconds"], asked["now"], self.tables)
        filled.inside(self.parameters)
        return json.dumps(
            {
                "values": filled.values,
                "how": [list(row) for row in filled.how],
                "unread": [list(row) for row in filled.unread],
                "notes": filled.notes,
            }
        )


def fill(texts: list[str], seconds: Any, now: Any, known: dict[str, Any]) -> Filled:
    """Settings from texts of one server, told by their content."""
    logs = [text for text in texts if text.strip()[0] == "{"]
    if logs:
        return from_lines(logs[-1], known)
    pages = [read_scrape(text) for text in texts]
    pages = [page for page in pages if page.samples]
    if not pages:
        filled = Filled()
        filled.lack("everything", "neither metrics nor a run log; paste a page of /metrics")
        return filled
    start = pages[-1].total(START)
    restarted = len(pages) > 1 and pages[0].total(START) != start
    if not seconds and (len(pages) == 1 or restarted):  # counted since the server's start
        seconds = now - start if now and start else None
    return from_metrics(pages, seconds, known)
