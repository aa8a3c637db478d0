"""Exercise 1.4: the knee by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from minilab.lab.exercise import Case, Exercise, Misconception


def knee(
    attainment: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    """The highest rate known to attain the target after ``steps`` halvings of [low, high]."""
    for _ in range(steps):
        middle = (low + high) / 2
        if attainment(middle) >= target:
            low = middle
        else:
            high = middle
    return low


def _upper(
    f: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) >= target else (low, middle)
    return high


def _flipped(
    f: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if f(middle) >= target else (middle, high)
    return low


def _best_product(
    f: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    rates = np.linspace(low, high, steps + 1)
    return float(max(rates, key=lambda rate: rate * f(float(rate))))


class Curve:
    """Attainment that falls around ``centre``; shown by name in messages."""

    def __init__(self, centre: float, width: float) -> None:
        self.centre, self.width = centre, width

    def __call__(self, rate: float) -> float:
        return 1 / (1 + math.exp((rate - self.centre) / self.width))

    def __repr__(self) -> str:
        return f"a curve that falls near {self.centre:g} requests/s"


KNEE = Exercise(
    "1.4",
    "The knee by bisection",
    knee,
    cases=(
        Case((Curve(9.0, 0.5), 1.0, 16.0, 0.9, 6), name="six halvings"),
        Case((Curve(30.0, 0.5), 1.0, 16.0, 0.9, 5), name="the target is met everywhere"),
        Case((Curve(5.0, 1.5), 2.0, 12.0, 0.99, 1), name="one halving"),
    ),
    misconceptions=(
        Misconception(
            "the failing end",
            _upper,
            "this end of the interval missed the target: promise only a capacity that you saw",
        ),
        Misconception(
            "flipped halves",
            _flipped,
            "the halves are swapped: when the middle is good enough, the knee lies above it",
        ),
        Misconception(
            "the middle",
            lambda f, low, high, target, steps: (
                (knee(f, low, high, target, steps) + _upper(f, low, high, target, steps)) / 2
            ),
            "this is the middle of what is left, a rate at which nothing was measured",
        ),
        Misconception(
            "one halving too few",
            lambda f, low, high, target, steps: knee(f, low, high, target, max(0, steps - 1)),
            "one halving is missing",
        ),
        Misconception(
            "best goodput",
            _best_product,
            "this maximises good requests per second and lets the share of good ones fall; the "
            "knee keeps the promised share",
        ),
    ),
    hints=(
        "Keep two rates: one that is known to hold, one that is known to fail.",
        "Look at the middle, and move the end that it proves wrong.",
        "After the last halving, return the rate that was seen to hold.",
    ),
    draw=lambda rng: Case(
        (
            Curve(round(rng.uniform(3, 14), 2), round(rng.uniform(0.2, 1.5), 2)),
            1.0,
            16.0,
            rng.choice([0.9, 0.95, 0.99]),
            rng.randint(3, 9),
        )
    ),
    unit="1/s",
)
