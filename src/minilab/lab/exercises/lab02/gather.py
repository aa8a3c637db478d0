"""Exercise 2.D1: from how many pieces on copying first is quicker."""

from __future__ import annotations

import math

from minilab.lab.exercise import Case, Exercise, Misconception


def pieces_to_gather(nbytes: float, alpha: float, copy_bandwidth: float) -> int:
    """The smallest number of pieces for which gathering wins.

    Scattered: ``alpha`` for each piece. Gathered: one piece, and on each side a copy that reads and
    writes every byte.
    """
    copies = 2 * 2 * nbytes / copy_bandwidth
    return max(1, math.floor(1 + copies / alpha) + 1)


GATHER = Exercise(
    "2.D1",
    "From how many pieces on gathering wins",
    pieces_to_gather,
    cases=(
        Case((524_288_000.0, 1e-6, 2.5e12), name="4,000 tokens of an 8B model on an H100"),
        Case((524_288_000.0, 1e-4, 2.5e12), name="dear pieces"),
        Case((32_768.0, 1e-6, 2.5e12), name="a single token"),
    ),
    misconceptions=(
        Misconception(
            "read only",
            lambda b, a, c: max(1, math.floor(1 + 2 * b / c / a) + 1),
            "a copy reads and writes: twice the bytes pass the memory",
        ),
        Misconception(
            "one copy in all",
            lambda b, a, c: max(1, math.floor(1 + b / c / a) + 1),
            "both ends copy, and each copy reads and writes",
        ),
        Misconception(
            "the last that loses",
            lambda b, a, c: max(1, math.floor(1 + 4 * b / c / a)),
            "with this many pieces gathering does not win yet",
        ),
        Misconception(
            "copies are free",
            lambda b, a, c: 2,
            "copying takes time on both sides, however quick the memory is",
        ),
    ),
    hints=(
        "The bytes on the wire are the same both ways: leave them out.",
        "Scattered costs alpha for each piece; gathered costs alpha once, and the copies.",
        "Each of the two copies moves every byte through memory twice.",
    ),
    draw=lambda rng: Case(
        (rng.uniform(1e6, 1e9), rng.choice([1e-6, 5e-6, 2e-5]), rng.choice([1e12, 2.5e12, 6e12]))
    ),
    unit="pieces",
    core=False,
)
