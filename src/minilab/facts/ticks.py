"""Simulated time as whole ticks of 2**-44 s, so that sums of step times are exact.

Floats make ``a + b + c`` depend on the order of the additions, and an arrival that falls exactly on
a step boundary then lands on one side when steps are simulated one by one and on the other when
they are skipped in closed form. Python integers have no such order and no horizon: a tick is 57
femtoseconds, and a run may last as long as it likes.
"""

from __future__ import annotations

TICKS_PER_SECOND = 1 << 44


def to_ticks(seconds: float) -> int:
    """Seconds to the nearest tick (an error of at most 2.9e-14 s)."""
    return round(seconds * TICKS_PER_SECOND)


def to_seconds(ticks: int) -> float:
    """Ticks to seconds, rounded once (to the nearest double)."""
    return ticks / TICKS_PER_SECOND
