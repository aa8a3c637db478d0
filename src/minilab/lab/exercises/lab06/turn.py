"""Exercise 6.4: the batch from which ranks with expert parallelism beat slices."""

from __future__ import annotations

import math
import random

from minilab.lab.exercise import Case, Exercise, Misconception

Line = tuple[float, float]


def turning_batch(slices: Line, ranks: Line) -> int | None:
    """The smallest batch at which a step with ranks is strictly shorter; None if there is none.

    Each line is (seconds of an empty step, seconds per sequence).
    """
    (start, each), (other_start, other_each) = slices, ranks
    if other_start + other_each < start + each:
        return 1
    if other_each >= each:
        return None
    return math.floor((other_start - start) / (each - other_each)) + 1


def _turn(slices: Line, ranks: Line) -> float:
    return (ranks[0] - slices[0]) / (slices[1] - ranks[1]) if slices[1] != ranks[1] else math.inf


def _not_strict(slices: Line, ranks: Line) -> int | None:
    right = turning_batch(slices, ranks)
    return right if right is None or right == 1 else math.ceil(_turn(slices, ranks))


def _rounded_down(slices: Line, ranks: Line) -> int | None:
    right = turning_batch(slices, ranks)
    return right if right is None or right == 1 else right - 1


def _steeper_never(slices: Line, ranks: Line) -> int | None:
    return None if ranks[1] >= slices[1] else turning_batch(slices, ranks)


def _always(slices: Line, ranks: Line) -> int:
    at = _turn(slices, ranks)
    return math.floor(at) + 1 if math.isfinite(at) else 0


def _by_slope(slices: Line, ranks: Line) -> int | None:
    return None if ranks[1] >= slices[1] else 1


def _by_start(slices: Line, ranks: Line) -> int | None:
    if ranks[1] >= slices[1]:
        return turning_batch(slices, ranks)
    return max(1, math.floor(ranks[0] / slices[1]) + 1)


def _near_whole(at: float) -> bool:
    """Whether rounding errors could decide: two right ways to compute it might then differ."""
    return math.isfinite(at) and abs(at - round(at)) < 1e-4


def _draw(rng: random.Random) -> Case:
    def line(start: float) -> Line:
        return round(start * rng.uniform(0.5, 1.5), 2), round(rng.uniform(0.05, 0.4), 3)

    while True:
        slices, ranks = line(8.0), line(rng.choice([6.0, 16.0, 30.0]))
        if not _near_whole(_turn(slices, ranks)):
            return Case((slices, ranks))


TURN = Exercise(
    "6.4",
    "The batch where EP stops losing",
    turning_batch,
    cases=(
        Case(((8.0, 0.11), (16.0, 0.05)), name="a later start, a gentler slope"),
        Case(((8.0, 0.5), (10.0, 0.25)), name="equal at a whole number"),
        Case(((8.0, 0.05), (16.0, 0.06)), name="a slow network: steeper as well"),
        Case(((18.0, 0.11), (16.0, 0.05)), name="ahead from the start"),
        Case(((18.0, 0.05), (10.0, 0.06)), name="ahead at first, though steeper"),
        Case(((8.0, 0.08), (16.0, 0.08)), name="parallel lines"),
    ),
    misconceptions=(
        Misconception(
            "not strict",  # before "rounded down", which has its value where both are equal
            _not_strict,
            "at that batch both steps take equally long: ranks are not yet ahead",
        ),
        Misconception(
            "rounded down",
            _rounded_down,
            "the crossing was rounded down: at that batch ranks are still behind, or just equal",
        ),
        Misconception(
            "lines always cross at a batch",
            _always,
            "two lines may cross at no batch at all, or where the batch is below one",
        ),
        Misconception(
            "a steeper line never wins",  # before "the slope decides", which agrees where it fails
            _steeper_never,
            "a steeper line falls behind in the end, but it may start low enough to be ahead first",
        ),
        Misconception(
            "the slope decides",
            _by_slope,
            "the gentler slope wins in the end, but how long does it need to catch up?",
        ),
        Misconception(
            "the start over the slope",
            _by_start,
            "it must catch up the difference of the starts, at the difference of the slopes",
        ),
        Misconception(
            "turned round",
            lambda slices, ranks: turning_batch(ranks, slices),
            "this is the batch from which slices beat ranks",
        ),
    ),
    hints=(
        "Write both steps as start + each x batch. When is the one below the other?",
        "What if ranks are ahead with one sequence? What if their slope is not the smaller one?",
        "Strictly shorter: where both are equal, the next batch is the first.",
    ),
    draw=_draw,
    unit="sequences",
)
