"""Clocks to measure an engine by: the wall's, and that of the CPU.

Where other programs share the cores, wall time counts their turns too. A process's own CPU time
does not: it is about what the wall would show on cores of its own (shared caches and memory still
tell). It stands still while nothing is computed, so waiting for an arrival just moves it on.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow."""

    def now(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Return when so many more have passed."""


class WallClock:
    """Real time: what a user waits."""

    def now(self) -> float:
        """See ``time.perf_counter``."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class CpuClock:
    """CPU seconds of this process, all its threads, and the waits that were skipped.

    With one computing thread it is what a wall clock would show on a core of its own.
    """

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        """CPU seconds and skipped ones."""
        return time.process_time() + self._skipped

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self._skipped += seconds


CLOCKS: dict[str, type[WallClock] | type[CpuClock]] = {"wall": WallClock, "cpu": CpuClock}
