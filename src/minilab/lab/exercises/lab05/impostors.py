"""Exercise 5.3: formats that pass by reconstruction error and fail by what the model says."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Row = tuple[str, float, float]


def impostors(rows: Sequence[Row], error_limit: float, kl_limit: float) -> list[str]:
    """Names of the formats whose error is within its limit but whose KL is not, worst KL first.

    A row is (name, relative error of keys and values, KL in nats).
    """
    found = [row for row in rows if row[1] <= error_limit and row[2] > kl_limit]
    return [name for name, _, _ in sorted(found, key=lambda row: -row[2])]


def _draw(rng: random.Random) -> Case:
    names = rng.sample(["int8", "e4m3", "e5m2", "int4", "int4-th", "nf4", "int6", "fp6"], 6)
    rows = [(n, round(rng.uniform(0.001, 0.2), 4), round(rng.uniform(0, 0.6), 4)) for n in names]
    return Case((rows, 0.1, 0.1))


IMPOSTORS = Exercise(
    "5.3",
    "Looks fine, is not",
    impostors,
    cases=(
        Case(
            (
                [
                    ("int8", 0.006, 0.003),
                    ("e4m3", 0.026, 0.007),
                    ("e5m2", 0.052, 0.03),
                    ("int4 per vector", 0.08, 0.31),
                    ("int4 per head", 0.095, 0.91),
                    ("saturated", 0.9, 8.3),
                ],
                0.1,
                0.1,
            ),
            name="six formats, two of them within the error limit and broken",
        ),
        Case(([("a", 0.05, 0.1), ("b", 0.1, 0.2)], 0.1, 0.1), name="numbers that equal a limit"),
        Case(([("a", 0.2, 0.5), ("b", 0.01, 0.01)], 0.1, 0.1), name="none"),
    ),
    misconceptions=(
        Misconception(
            "fails both",
            lambda rows, e, k: [
                n for n, a, b in sorted(rows, key=lambda r: -r[2]) if a > e and b > k
            ],
            "these fail by both measures: nobody is deceived by them",
        ),
        Misconception(
            "everything with a large KL",
            lambda rows, e, k: [n for n, _, b in sorted(rows, key=lambda r: -r[2]) if b > k],
            "some of these are caught by the reconstruction error already",
        ),
        Misconception(
            "the other way round",
            lambda rows, e, k: [
                n for n, a, b in sorted(rows, key=lambda r: -r[2]) if a > e and b <= k
            ],
            "these look bad and are harmless: the opposite case",
        ),
        Misconception(
            "in the order of the table",
            lambda rows, e, k: [n for n, a, b in rows if a <= e and b > k],
            "the right names; the worst KL must come first",
        ),
        Misconception(
            "sorted by error",
            lambda rows, e, k: [
                n for n, a, b in sorted(rows, key=lambda r: -r[1]) if a <= e and b > k
            ],
            "the right names, sorted by the measure that deceives",
        ),
    ),
    hints=(
        "Two conditions at once: the error passes, the KL does not.",
        "Within a limit includes the limit itself.",
        "Sort what is left by KL, largest first, and return the names alone.",
    ),
    draw=_draw,
)
