"""AwakeClock: the seconds in which this process could have heard something.

A process that was stopped (a closed laptop, a debugger, a busy machine) wakes up to deadlines that
passed while it could not listen, and would blame the other one. On this clock they did not pass.
"""

from __future__ import annotations

import time

MOST_SECONDS = 1.0


class AwakeClock:
    """Seconds since the start; between two looks it moves by at most ``MOST_SECONDS``."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._looked = time.monotonic()

    def now(self) -> float:
        """Look at the clock."""
        looked = time.monotonic()
        self._seconds += min(looked - self._looked, MOST_SECONDS)
        self._looked = looked
        return self._seconds
