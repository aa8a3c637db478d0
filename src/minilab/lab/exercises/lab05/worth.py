"""Exercise 5.4: the context from which FP8 KV decodes faster, if there is one."""

from __future__ import annotations

import random
from collections.abc import Callable

from minilab.lab.exercise import Case, Exercise, Misconception

Line = tuple[float, float]


def worth_from(plain: Line, quantised: Line) -> float | None:
    """Least context (tokens) from which the second line is below the first; None if none is.

    A line is (base in ms, slope in ms per token of context). Where it is below from the start: 0.
    """
    saved, paid = plain[1] - quantised[1], quantised[0] - plain[0]
    if paid <= 0 and saved >= 0:
        return 0.0
    return paid / saved if saved > 0 else None


def _guarded(formula: Callable[[Line, Line], float]) -> Callable[[Line, Line], float | None]:
    """The right answer where there is no crossing, ``formula`` where there is one."""

    def wrong(plain: Line, quantised: Line) -> float | None:
        right = worth_from(plain, quantised)
        return formula(plain, quantised) if right else right

    return wrong


def _draw(rng: random.Random) -> Case:
    base, slope = rng.uniform(2, 20), rng.uniform(5e-6, 2e-4)
    kind = rng.randrange(3)
    other = base + (rng.uniform(0.01, 0.4) if kind else -rng.uniform(0, 0.2))
    return Case(((base, slope), (other, slope * (rng.uniform(0.5, 0.9) if kind < 2 else 1.0))))


WORTH = Exercise(
    "5.4",
    "Worth it from which context?",
    worth_from,
    cases=(
        Case(((6.44, 4.37e-5), (6.58, 2.37e-5)), name="Llama-3.1-8B on an H100"),
        Case(((3.15, 3.56e-6), (3.17, 2.06e-6)), name="gpt-oss-20b on a B200"),
        Case(((9.8, 6.4e-5), (10.1, 6.4e-5)), name="values widened before use: nothing saved"),
        Case(((5.0, 2e-5), (5.0, 1e-5)), name="no cost at all"),
    ),
    misconceptions=(
        Misconception(
            "bases only",
            _guarded(lambda p, q: (q[0] - p[0]) / p[1]),
            "FP8 still reads something: what pays for the base is the *difference* of the slopes",
        ),
        Misconception(
            "slope of the quantised line",
            _guarded(lambda p, q: (q[0] - p[0]) / q[1]),
            "this is how far the quantised line must run to double its head start; compare the two",
        ),
        Misconception(
            "ratio of the slopes",
            _guarded(lambda p, q: (q[0] - p[0]) * p[1] / q[1]),
            "a ratio of slopes has no unit; tokens come from ms over ms per token",
        ),
        Misconception(
            "always worth it",
            lambda p, q: 0.0,
            "it must first earn back what quantising costs in every step",
        ),
        Misconception(
            "never None",
            lambda p, q: (q[0] - p[0]) / (p[1] - q[1]) if p[1] != q[1] else 0.0,
            "where nothing is saved per token, no context is long enough",
        ),
    ),
    hints=(
        "At the break-even both lines are equal: solve for the context.",
        "FP8 costs the difference of the bases and saves that of the slopes on every token.",
        "Two cases have no crossing: it costs nothing, or it saves nothing.",
    ),
    draw=_draw,
    unit="tokens",
)
