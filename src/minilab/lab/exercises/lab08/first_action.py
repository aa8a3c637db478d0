"""Exercise 8.1: which action comes first, from what each of them would have served."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from minilab.judge.drill.case import GOOD
from minilab.lab.exercise import Case, Exercise, Misconception

Served = Mapping[str, tuple[int, float, int]]
"""Action -> (good requests, seconds of the run, GPUs in use). One of them is "leave"."""


def per_gpu(served: tuple[int, float, int]) -> float:
    """Goodput per GPU, requests/s."""
    good, seconds, gpus = served
    return good / seconds / gpus


def first_action(after: Served) -> str:
    """The action with the highest goodput per GPU; "leave" if that reaches nine tenths of it."""
    best = max(after, key=lambda key: per_gpu(after[key]))
    return "leave" if per_gpu(after["leave"]) >= GOOD * per_gpu(after[best]) else best


def _by(measure: Callable[[tuple[int, float, int]], float]) -> Callable[[Served], str]:
    """The action with the highest ``measure``."""
    return lambda after: max(after, key=lambda key: measure(after[key]))


def _draw(rng: random.Random) -> Case:
    keys = rng.sample(["replica", "split", "fp8", "chunk", "tp"], rng.randint(2, 4))
    after = {
        key: (rng.randint(50, 900), round(rng.uniform(20, 60), 1), rng.choice((1, 2, 4)))
        for key in [*keys, "leave"]
    }
    return Case((after,))


FIRST_ACTION = Exercise(
    "8.1",
    "Which action comes first",
    first_action,
    cases=(
        Case(
            ({"replica": (900, 40.0, 2), "chunk": (600, 40.0, 1), "leave": (100, 40.0, 1)},),
            name="a second GPU against a setting",
        ),
        Case(
            ({"replica": (300, 30.0, 2), "fp8": (303, 30.0, 1), "leave": (300, 30.0, 1)},),
            name="hardly anything to gain",
        ),
        Case(
            ({"four": (800, 20.0, 4), "replica": (780, 20.0, 2), "leave": (20, 24.0, 1)},),
            name="more servers than the load needs",
        ),
        Case(
            ({"off": (520, 18.0, 1), "one": (500, 16.2, 1), "leave": (80, 17.0, 1)},),
            name="runs of different length",
        ),
        Case(
            ({"split": (200, 100.0, 2), "tp": (198, 120.0, 2), "leave": (100, 110.0, 1)},),
            name="just within a tenth",
        ),
    ),
    misconceptions=(
        Misconception(
            "most good requests",
            _by(lambda served: served[0]),
            "a count of good requests forgets how long the run took and how many GPUs served it",
        ),
        Misconception(
            "GPUs are free",
            _by(lambda served: served[0] / served[1]),
            "good requests per second grow with each GPU you add; the promise is made per GPU",
        ),
        Misconception(
            "always do something",
            _by(per_gpu),
            "a gain of less than a tenth is not worth a lever that somebody has to run",
        ),
        Misconception(
            "fewest GPUs",
            _by(lambda served: -served[2]),
            "the smallest bill is no goal in itself: a cheap server that is late serves nobody",
        ),
        Misconception(
            "time was not divided by",
            _by(lambda served: served[0] / served[2]),
            "good requests per GPU are no rate; divide by the seconds of the run, too",
        ),
    ),
    hints=(
        "Goodput per GPU: good requests, over the seconds of the run, over the GPUs in use.",
        "Take the best of them, then compare it with what doing nothing reaches.",
    ),
    draw=_draw,
)
