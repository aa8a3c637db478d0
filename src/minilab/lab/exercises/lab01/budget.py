"""Exercise 1.D1: the largest token budget that keeps the stream smooth."""

from __future__ import annotations

from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception


def largest_budget(
    itl_slo: float, decode_seconds: float, seconds_per_token: float, budgets: Sequence[int]
) -> int | None:
    """The largest token budget whose full step still keeps the gap limit; None if none does."""
    fits = [b for b in budgets if decode_seconds + b * seconds_per_token <= itl_slo]
    return max(fits) if fits else None


BUDGET = Exercise(
    "1.D1",
    "The largest budget that keeps the stream smooth",
    largest_budget,
    cases=(
        Case((0.05, 0.008, 1.7e-5, [512, 1024, 2048, 4096, 8192]), name="an H100 and an 8B model"),
        Case((0.01, 0.009, 1e-4, [512, 1024]), name="a limit that no budget keeps"),
        Case((0.1, 0.02, 8e-5, [8192, 256, 1000, 512]), name="budgets in no order, one exact"),
    ),
    misconceptions=(
        Misconception(
            "decode step forgotten",
            lambda s, d, f, b: max((x for x in b if x * f <= s), default=None),
            "the decodes share the step with the chunk: their own time is missing",
        ),
        Misconception(
            "smallest",
            lambda s, d, f, b: min((x for x in b if d + x * f <= s), default=None),
            "this is the smallest one that holds; it makes prompts wait without need",
        ),
        Misconception(
            "solved, not chosen",
            lambda s, d, f, b: (s - d) / f,
            "this solves the inequality; the answer must be one of the budgets on offer",
        ),
        Misconception(
            "last in the list",
            lambda s, d, f, b: next((x for x in reversed(b) if d + x * f <= s), None),
            "this takes the last one in the list; the list need not be in order",
        ),
    ),
    hints=(
        "The longest step holds a full chunk and every decode.",
        "Keep the budgets whose longest step is within the limit.",
    ),
    draw=lambda rng: Case(
        (
            round(rng.uniform(0.02, 0.2), 3),
            round(rng.uniform(0.004, 0.03), 4),
            rng.uniform(1e-5, 1e-4),
            rng.sample([256, 512, 1024, 2048, 4096, 8192, 16384], 5),
        )
    ),
    unit="tokens",
    core=False,
)
