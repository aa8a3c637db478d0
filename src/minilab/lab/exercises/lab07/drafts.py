"""Exercise 7.4: the batch from which on speculation makes tokens slower."""

from __future__ import annotations

import math

from minilab.lab.exercise import Case, Exercise, Misconception


def losing_batch(
    fixed: float, token: float, reading: float, acceptance: float, drafts: int, draft_cost: float
) -> int | None:
    """The fewest sequences for which drafting loses; None if it never does.

    A step of n sequences and w positions of each takes fixed + n (w token + reading): seconds for
    the weights, for a computed position, for a sequence's KV. With drafts it computes drafts + 1
    positions, takes 1 + drafts x draft_cost times as long, and emits
    E = (1 - a^(drafts + 1)) / (1 - a) tokens per sequence (Leviathan et al. 2023).
    """
    emitted = (1 - acceptance ** (drafts + 1)) / (1 - acceptance)
    return _least(fixed, token, reading, emitted, drafts + 1, 1 + drafts * draft_cost)


def _least(
    fixed: float, token: float, reading: float, emitted: float, width: float, longer: float
) -> int | None:
    """The fewest n >= 1 with longer x (fixed + n (width token + reading)) above emitted x (fixed +
    n (token + reading))."""
    gained = fixed * (emitted - longer)
    lost = longer * (width * token + reading) - emitted * (token + reading)
    if gained < 0 < lost:
        return 1
    if lost <= 0:
        return None if gained >= 0 else 1
    return math.floor(gained / lost) + 1


def _emitted(a: float, k: int) -> float:
    return float((1 - a ** (k + 1)) / (1 - a))


DRAFTS = Exercise(
    "7.4",
    "A lever that loses",
    losing_batch,
    cases=(
        Case((0.006, 1.3e-5, 2e-5, 0.6, 4, 0.05), name="an 8B model, a short context"),
        Case((0.006, 1.3e-5, 6e-5, 0.3, 4, 0.05), name="a poor draft"),
        Case((0.006, 1.3e-5, 4e-4, 0.7, 4, 0.05), name="reading KV dominates"),
        Case((0.006, 1.3e-5, 6e-5, 0.1, 4, 0.2), name="worse than no draft at once"),
    ),
    misconceptions=(
        Misconception(
            "all drafts count",
            lambda f, t, r, a, k, c: _least(f, t, r, 1 + a * k, k + 1, 1 + k * c),
            "a draft token counts only if all before it were accepted",
        ),
        Misconception(
            "a free draft",
            lambda f, t, r, a, k, c: _least(f, t, r, _emitted(a, k), k + 1, 1.0),
            "the draft takes time as well, before each step",
        ),
        Misconception(
            "drafts only",
            lambda f, t, r, a, k, c: _least(f, t, r, _emitted(a, k), k, 1 + k * c),
            "one more position than drafts is computed: the last token that is certain",
        ),
        Misconception(
            "KV read for each position",
            lambda f, t, r, a, k, c: _least(f, t, r, _emitted(a, k), k + 1 + k * r / t, 1 + k * c),
            "the positions of a sequence share one reading of its KV",
        ),
        Misconception(
            "width forgotten",
            lambda f, t, r, a, k, c: _least(f, t, r, _emitted(a, k), 1, 1 + k * c),
            "each draft token is computed by the target too, and a full step feels it",
        ),
    ),
    hints=(
        "Write down seconds per token and sequence, with and without drafts.",
        "Both are straight lines in n: drafts save on the fixed part and cost more per sequence.",
        "If it loses nothing per sequence it never loses; if it gains nothing at n = 1, say so.",
    ),
    draw=lambda rng: Case(
        (
            rng.choice([0.004, 0.006, 0.012]),
            rng.choice([8e-6, 1.3e-5, 5e-5]),
            rng.choice([2e-5, 6e-5, 3e-4]),
            rng.choice([0.2, 0.45, 0.6, 0.75, 0.9]),
            rng.choice([2, 4, 6]),
            rng.choice([0.02, 0.05, 0.15]),
        )
    ),
    unit="sequences",
)
