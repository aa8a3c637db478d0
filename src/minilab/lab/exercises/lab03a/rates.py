"""Exercise 3a.3: two hit rates of one run."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Row = tuple[int, int]


def hit_rates(rows: Sequence[Row]) -> tuple[float, float]:
    """(token hit rate, mean of the requests' own hit rates) of (cached, prompt) tokens."""
    cached, prompt = (sum(column) for column in zip(*rows, strict=True))
    return cached / prompt, sum(c / p for c, p in rows) / len(rows)


def _draw(rng: random.Random) -> Case:
    rows = []
    for _ in range(rng.randint(2, 9)):
        prompt = rng.choice([40, 300, 5000])
        rows.append((rng.randint(0, prompt - 1), prompt))
    return Case((rows,))


RATES = Exercise(
    "3a.3",
    "Two hit rates of one run",
    hit_rates,
    cases=(
        Case(([(0, 200), (0, 300), (7000, 8000)],), name="one long prompt hits"),
        Case(([(80, 100), (160, 200), (0, 8000)],), name="the short ones hit"),
    ),
    misconceptions=(
        Misconception(
            "swapped",
            lambda rows: hit_rates(rows)[::-1],
            "the two are swapped: the first weighs every token alike, the second every request",
        ),
        Misconception(
            "requests with a hit",
            lambda rows: (hit_rates(rows)[0], sum(c > 0 for c, _ in rows) / len(rows)),
            "the second one counts requests that hit at all: a hit of one block would count as much"
            " as one of the whole prompt",
        ),
        Misconception(
            "hits over misses",
            lambda rows: (
                sum(c for c, _ in rows) / max(1, sum(p - c for c, p in rows)),
                hit_rates(rows)[1],
            ),
            "the first one divides by the tokens that missed; a rate divides by all",
        ),
        Misconception(
            "the mean twice",
            lambda rows: (hit_rates(rows)[1], hit_rates(rows)[1]),
            "the first is a mean over requests as well: a prompt of 8,000 tokens must weigh more "
            "in it",
        ),
        Misconception(
            "per request with tokens",
            lambda rows: (sum(c for c, _ in rows) / len(rows), hit_rates(rows)[1]),
            "the first one divides by the number of requests; that is tokens per request, no rate",
        ),
    ),
    hints=(
        "The first: all cached tokens over all prompt tokens.",
        "The second: each request's own share first, then their mean.",
    ),
    draw=_draw,
)
