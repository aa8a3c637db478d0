"""Exercise 3b.D1: can two tenants be told apart? An exact permutation test."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from minilab.lab.exercise import Case, Exercise, Misconception

Times = Sequence[float]


def p_value(one: Times, two: Times) -> float:
    """Share of all splits whose means differ at least as much as the true one's."""
    return _share(one, two)


def _share(one: Times, two: Times, *, strict: bool = False, one_sided: bool = False) -> float:
    both, n = [*one, *two], len(one)
    total = sum(both)

    def gap(first: float) -> float:
        found = first / n - (total - first) / (len(both) - n)
        return found if one_sided else abs(found)

    seen = gap(sum(one))
    gaps = [gap(sum(part)) for part in combinations(both, n)]
    slack = 1e-12
    return sum(g > seen + slack if strict else g >= seen - slack for g in gaps) / len(gaps)


PERMUTATION = Exercise(
    "3b.D1",
    "Can the tenants be told apart?",
    p_value,
    cases=(
        Case(([0.10, 0.11, 0.12, 0.13], [0.30, 0.31, 0.32, 0.33]), name="far apart"),
        Case(([0.10, 0.30, 0.12, 0.33], [0.11, 0.31, 0.32, 0.13]), name="mixed"),
        Case(([0.2, 0.2], [0.2, 0.2, 0.2]), name="all equal"),
    ),
    misconceptions=(
        Misconception(
            "only more extreme",
            lambda a, b: _share(a, b, strict=True),
            "the true split itself belongs to the count: at least as extreme, not more",
        ),
        Misconception(
            "one side",
            lambda a, b: _share(a, b, one_sided=True),
            "a difference in the other direction gives the tenant away as well: take its size",
        ),
        Misconception(
            "one minus p",
            lambda a, b: 1 - _share(a, b),
            "this is the share of the less extreme splits",
        ),
        Misconception(
            "difference",
            lambda a, b: abs(sum(a) / len(a) - sum(b) / len(b)),
            "this is the difference itself; asked is how often chance alone gives as much",
        ),
    ),
    hints=(
        "itertools.combinations gives every way to choose who belongs to the first group.",
        "Compare the size of the difference of means; allow 1e-12 for rounding.",
    ),
    draw=lambda rng: Case(
        (
            [round(rng.uniform(0.1, 0.4), 3) for _ in range(rng.randint(2, 4))],
            [round(rng.uniform(0.1, 0.4), 3) for _ in range(rng.randint(2, 4))],
        )
    ),
    core=False,
    abs=1e-9,
)
