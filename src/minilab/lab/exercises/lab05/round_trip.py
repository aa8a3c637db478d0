"""Exercise 5.2: keys through an int8 cache, with one scale or with one per head."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

LARGEST = 127
Heads = Sequence[Sequence[float]]


def round_trip(heads: Heads, per_head: bool) -> list[list[float]]:
    """What is read back after ``heads`` (a list of numbers for each head) were stored as int8.

    stored = number / scale, rounded and kept within -127..127; the scale maps the largest magnitude
    of the head, or of all heads, onto 127.
    """
    largest = [max(abs(x) for x in head) for head in heads]
    scales = [(own if per_head else max(largest)) / LARGEST or 1.0 for own in largest]
    return [
        [max(-LARGEST, min(LARGEST, round(x / s))) * s for x in head]
        for head, s in zip(heads, scales, strict=True)
    ]


def _with(heads: Heads, scales: Sequence[float]) -> list[list[float]]:
    return [
        [max(-LARGEST, min(LARGEST, round(x / s))) * s for x in head]
        for head, s in zip(heads, scales, strict=True)
    ]


def _largest(heads: Heads) -> list[float]:
    return [max(abs(x) for x in head) for head in heads]


def _draw(rng: random.Random) -> Case:
    sizes = [10 ** rng.uniform(-1, 2) for _ in range(rng.randint(2, 4))]
    heads = [[round(rng.gauss(0, s), 4) for _ in range(rng.randint(3, 6))] for s in sizes]
    return Case((heads, rng.random() < 0.5))


SOME = [[0.5, -0.25, 0.125], [40.0, -3.0, 12.7]]
ROUND_TRIP = Exercise(
    "5.2",
    "Through the cache and back",
    round_trip,
    cases=(
        Case((SOME, False), name="one scale for all heads, one of them 80 times larger"),
        Case((SOME, True), name="the same with a scale per head"),
        Case(([[-2.0, 1.0, 0.3], [0.0, 0.0, 0.0]], True), name="a head of zeros"),
    ),
    misconceptions=(
        Misconception(
            "the other granularity",
            lambda heads, per_head: round_trip(heads, not per_head),
            "this is the other granularity: look at what per_head says",
        ),
        Misconception(
            "codes, not values",
            lambda heads, per_head: [
                [round(x / s) for x in head]
                for head, s in zip(
                    heads,
                    [
                        (m if per_head else max(_largest(heads))) / LARGEST or 1.0
                        for m in _largest(heads)
                    ],
                    strict=True,
                )
            ],
            "these are the stored codes; attention reads code times scale",
        ),
        Misconception(
            "the largest, not the largest magnitude",
            lambda heads, per_head: _with(
                heads,
                [
                    abs(max(head) if per_head else max(max(h) for h in heads)) / LARGEST or 1.0
                    for head in heads
                ],
            ),
            "a large negative number needs room too: this scale lets it saturate",
        ),
        Misconception(
            "onto 128",
            lambda heads, per_head: _with(
                heads,
                [(m if per_head else max(_largest(heads))) / 128 or 1.0 for m in _largest(heads)],
            ),
            "the largest code is 127 on the positive side: this scale is a little too small",
        ),
        Misconception(
            "cut off, not rounded",
            lambda heads, per_head: [
                [int(x / s) * s for x in head]
                for head, s in zip(
                    heads,
                    [
                        (m if per_head else max(_largest(heads))) / LARGEST or 1.0
                        for m in _largest(heads)
                    ],
                    strict=True,
                )
            ],
            "int() cuts towards zero: the error is up to a whole step instead of half of one",
        ),
    ),
    hints=(
        "A scale first: the largest magnitude that it must hold, divided by 127.",
        "Stored is round(x / scale); read back is that times the scale.",
        "A head of zeros has a largest magnitude of 0: any scale does, but not a division by 0.",
    ),
    draw=_draw,
    rel=1e-9,
)
