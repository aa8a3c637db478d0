"""Exercise 3a.D1: the block size is a floor on what can hit."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception


def best_hit_rate(shared: int, own: int, size: int) -> float:
    """The highest token hit rate of prompts with ``shared`` common and ``own`` other tokens."""
    return min(shared // size, (shared + own - 1) // size) * size / (shared + own)


FLOOR = Exercise(
    "3a.D1",
    "The block size is a floor",
    best_hit_rate,
    cases=(
        Case((240, 260, 784), name="a block larger than what is shared"),
        Case((1000, 200, 256), name="a rest is lost"),
        Case((512, 0, 256), name="equal prompts"),
    ),
    misconceptions=(
        Misconception(
            "everything hits",
            lambda s, o, b: s // b * b / (s + o) if o else 1.0,
            "even of an equal prompt the last token is computed, and with it its block",
        ),
        Misconception(
            "no floor",
            lambda s, o, b: s / (s + o),
            "this is what the texts share; only full blocks of it can be found",
        ),
        Misconception(
            "rounded up",
            lambda s, o, b: min(1.0, -(-s // b) * b / (s + o)),
            "the block in which the texts part is another block for each of them",
        ),
        Misconception(
            "of the shared part",
            lambda s, o, b: s // b * b / s,
            "this is the share of the common text; the rate is over the whole prompt",
        ),
    ),
    hints=(
        "How many full blocks fit into the shared text?",
        "An equal prompt still computes its last token.",
    ),
    draw=lambda rng: Case(
        (
            rng.randint(1, 3000),
            rng.choice([0, rng.randint(1, 3000)]),
            rng.choice([16, 64, 256, 784]),
        )
    ),
    core=False,
)
