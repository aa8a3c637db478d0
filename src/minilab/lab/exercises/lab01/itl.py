"""Exercise 1.2: the p99 gap of one request."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minilab.lab.exercise import Case, Exercise, Misconception


def itl_p99(token_times: Sequence[float]) -> float | None:
    """p99 of the gaps between a request's own tokens; None for fewer than two tokens."""
    gaps = np.diff(token_times)
    return float(np.percentile(gaps, 99)) if len(gaps) else None


def _gap_statistic(function: Callable[[Any], float]) -> Callable[[Sequence[float]], float | None]:
    def of(token_times: Sequence[float]) -> float | None:
        gaps = np.diff(token_times)
        return float(function(gaps)) if len(gaps) else None

    return of


def _token_times(rng: random.Random) -> Case:
    now, times = rng.uniform(1, 50), []
    for _ in range(rng.randint(20, 220)):
        times.append(round(now, 6))
        now += 0.3 if rng.random() < 0.03 else rng.uniform(0.008, 0.02)
    return Case((times,))


ITL = Exercise(
    "1.2",
    "The p99 gap of one request",
    itl_p99,
    cases=(
        Case(
            ([10.0 + 0.01 * i for i in range(40)] + [10.75 + 0.01 * i for i in range(40)],),
            name="a steady stream with one stall in the middle",
        ),
        Case(([5.0, 5.2, 5.21, 5.24],), name="four tokens"),
        Case(([7.5],), name="a single token"),
    ),
    misconceptions=(
        Misconception(
            "tpot",
            lambda t: (t[-1] - t[0]) / (len(t) - 1) if len(t) > 1 else None,
            "this is TPOT, the mean gap: a stall of half a second vanishes in a long answer",
        ),
        Misconception(
            "stall",
            _gap_statistic(np.max),
            "this is the largest gap, which the course calls the stall; p99 forgives one in a "
            "hundred",
        ),
        Misconception(
            "divided by tokens",
            lambda t: (t[-1] - t[0]) / len(t) if len(t) > 1 else None,
            "n tokens have n - 1 gaps between them; and a mean is not a tail",
        ),
        Misconception(
            "median gap",
            _gap_statistic(np.median),
            "this is the median gap: a reader notices the slow ones",
        ),
        Misconception(
            "milliseconds",
            lambda t: 1e3 * float(np.percentile(np.diff(t), 99)) if len(t) > 1 else None,
            "this is in milliseconds; times in this course are seconds",
        ),
        Misconception(
            "percentile of the times",
            lambda t: float(np.percentile(t, 99)) - t[0] if len(t) > 1 else None,
            "this is a percentile of the moments, not of the gaps between them",
        ),
        Misconception(
            "single token as zero",
            lambda t: float(np.percentile(np.diff(t), 99)) if len(t) > 1 else 0.0,
            "a single token has no gap: unavailable is None, and never zero",
        ),
    ),
    hints=(
        "The gaps are the differences of neighbouring times.",
        "numpy.diff gives n - 1 differences of n times.",
        "Think of a request with one token before you call the percentile.",
    ),
    draw=_token_times,
    unit="s",
)
