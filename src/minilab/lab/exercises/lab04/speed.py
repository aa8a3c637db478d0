"""Exercise 4.4: what a record of steps is worth in time, given what steps cost."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Seconds = Mapping[int, float]


def speedup(widths: Sequence[int], tokens: int, seconds: Seconds) -> float:
    """Time of plain decoding over time with guesses.

    ``widths``: positions that each step verified (1 without a guess); ``tokens``: what all steps
    put out together; ``seconds``: time of a step by its width.
    """
    return tokens * seconds[1] / sum(seconds[width] for width in widths)


def _drafted(widths: Sequence[int]) -> int:
    return max(1, sum(width > 1 for width in widths))


def _draw(rng: random.Random) -> Case:
    k = rng.randint(2, 5)
    base, slope = rng.uniform(5e-3, 4e-2), rng.uniform(0.02, 0.6)
    seconds = {width: base * (1 + slope * (width - 1)) for width in range(1, k + 2)}
    widths = [rng.choice([1, k + 1, k]) for _ in range(rng.randint(4, 12))]
    tokens = sum(rng.randint(1, width) for width in widths)
    return Case((widths, tokens, seconds))


CPU = {1: 0.036, 2: 0.043, 3: 0.050, 4: 0.057, 5: 0.065}
CARD = {1: 0.0071, 2: 0.0071, 3: 0.0072, 4: 0.0072, 5: 0.0073}
SPEED = Exercise(
    "4.4",
    "Is it faster?",
    speedup,
    cases=(
        Case(([5, 5, 1, 5, 5], 17, CPU), name="a copy, on a CPU"),
        Case(([1, 5, 1, 5, 5, 1], 8, CPU), name="a story, on a CPU"),
        Case(([1, 5, 1, 5, 5, 1], 8, CARD), name="the same story, on a card that waits for memory"),
    ),
    misconceptions=(
        Misconception(
            "tokens per step",
            lambda w, n, s: n / len(w),
            "tokens per step is speed only if a wide step takes as long as a narrow one",
        ),
        Misconception(
            "mean acceptance length",
            lambda w, n, s: 1 + (n - len(w)) / _drafted(w),
            "this is what vLLM logs as mean acceptance length: it leaves out the steps without a "
            "guess, and time altogether",
        ),
        Misconception(
            "tokens per position",
            lambda w, n, s: n / sum(w),
            "this takes a step to cost as much as its positions: the other extreme",
        ),
        Misconception(
            "all steps wide",
            lambda w, n, s: n * s[1] / (len(w) * s[max(w)]),
            "a step without a guess is a plain one, and takes a plain one's time",
        ),
        Misconception(
            "steps with a guess only",
            lambda w, n, s: n * s[1] / max(1e-9, sum(s[x] for x in w if x > 1)),
            "steps without a guess take time as well",
        ),
        Misconception(
            "as many plain steps as wide ones",
            lambda w, n, s: len(w) * s[1] / sum(s[x] for x in w),
            "plain decoding takes a step for each *token*, not for each step of the other run",
        ),
        Misconception(
            "the time saved",
            lambda w, n, s: n * s[1] - sum(s[x] for x in w),
            "this is a difference in seconds; a ratio is asked",
        ),
    ),
    hints=(
        "Plain decoding puts out one token a step, and each step has width 1.",
        "With guesses: look up each step's own time by its width, and add.",
        "Plain time over the other: above 1 it is faster.",
    ),
    draw=_draw,
)
