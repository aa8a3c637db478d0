"""Exercise 3a.4: a router with a load term."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Numbers = Sequence[float]


def choose(matches: Numbers, loads: Numbers, prompt: int, beta: float) -> int:
    """Instance with the highest (share cached) - beta * (load - mean) / max(1, mean)."""
    scores = _scores(matches, loads, prompt, beta)
    return scores.index(max(scores))


def _scores(matches: Numbers, loads: Numbers, prompt: float, beta: float) -> list[float]:
    mean = sum(loads) / len(loads)
    return [
        match / prompt - beta * (load - mean) / max(1.0, mean)
        for match, load in zip(matches, loads, strict=True)
    ]


def _first(values: Sequence[float]) -> int:
    return list(values).index(max(values))


def _draw(rng: random.Random) -> Case:
    n = rng.choice([2, 3, 4])
    prompt = rng.choice([500, 2000, 8000])
    matches = [rng.choice([0, prompt // 4, prompt // 2, prompt - 100]) for _ in range(n)]
    loads = [rng.choice([0, 1, 3, 8, 20]) for _ in range(n)]
    return Case((matches, loads, prompt, rng.choice([0.1, 0.5, 1.0])))


ROUTER = Exercise(
    "3a.4",
    "A router with a load term",
    choose,
    cases=(
        Case(([1000, 1000], [9, 0], 2000, 0.5), name="both have it, one is idle"),
        Case(([1800, 0, 0], [9, 0, 0], 2000, 0.5), name="the cached one is busy"),
        Case(([0, 1800, 200], [4, 5, 3], 2000, 0.5), name="loads are close"),
        Case(([0, 0, 0], [2, 1, 1], 2000, 0.5), name="nobody has it, two are equal"),
        Case(([0, 300, 0], [1, 40, 2], 8000, 0.1), name="a small hit on a busy instance"),
    ),
    misconceptions=(
        Misconception(
            "tokens",
            lambda m, n, p, b: _first(_scores(m, n, 1.0, b)),
            "the match counts in tokens and drowns the load; it is a share of the prompt",
        ),
        Misconception(
            "longest prefix",
            lambda m, n, p, b: _first(m),
            "load plays no part here: one popular prefix would send everyone to one instance",
        ),
        Misconception(
            "least load",
            lambda m, n, p, b: _first([-x for x in n]),
            "the cache plays no part here",
        ),
        Misconception(
            "busy is good",
            lambda m, n, p, b: _first(_scores(m, n, p, -b)),
            "the sign of the load term is turned round: this looks for the busiest",
        ),
        Misconception(
            "last of equals",
            lambda m, n, p, b: len(m) - 1 - _first(_scores(m, n, p, b)[::-1]),
            "of equal scores the first one is asked",
        ),
        Misconception(
            "lowest score",
            lambda m, n, p, b: _first([-x for x in _scores(m, n, p, b)]),
            "this takes the lowest score; a high one is good",
        ),
    ),
    hints=(
        "Compute one score per instance, in a list.",
        "The mean load is the same for all: compute it once, and do not divide by less than 1.",
        "list.index(max(list)) gives the first of equal ones.",
    ),
    draw=_draw,
)
