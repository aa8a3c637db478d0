"""Progress: what this session has checked, hinted, predicted and drawn.

Kept in memory by the process that runs the notebook; the report and ``make check`` read it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

PASSED = "passed"
NOT_YET = "not yet"
NOT_DONE = "not done yet"


@dataclass(frozen=True)
class Result:
    """The latest verdict on one exercise. reason: one sentence, empty when passed."""

    id: str
    title: str
    verdict: str
    reason: str = ""
    tries: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure that ``lab.show`` drew. kind: "png" or "svg+xml"; width: of the screen, pixels."""

    alt: str
    kind: str
    data: bytes
    width: int


@dataclass
class Progress:
    """One session's record. hints: how many were shown, by exercise; data: the source in use."""

    results: dict[str, Result] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def record(self, exercise_id: str, title: str, verdict: str, reason: str) -> None:
        """File a verdict; a later one replaces it and counts as one more try."""
        earlier = self.results.get(exercise_id)
        tries = earlier.tries + 1 if earlier else 1
        self.results[exercise_id] = Result(exercise_id, title, verdict, reason, tries)

    def keep(self, picture: Picture) -> None:
        """Keep a figure for the report; the same figure again (a cell run twice) stays one."""
        self.pictures = [p for p in self.pictures if p.alt != picture.alt] + [picture]

    def clear(self) -> None:
        """Forget everything, as a fresh session would."""
        self.results.clear()
        self.hints.clear()
        self.pictures.clear()
        self.data.clear()

    def results_json(self) -> str:
        """The verdicts as one line of JSON, for the process that runs the notebook."""
        return json.dumps([asdict(result) for result in self.results.values()])


_SESSION = Progress()


def session() -> Progress:
    """The record of this process: a notebook has one kernel, a kernel has one session."""
    return _SESSION
