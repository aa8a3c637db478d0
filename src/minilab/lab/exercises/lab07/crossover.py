"""Exercise 7.1: the output length at which decoding takes more time than the prompt."""

from __future__ import annotations

import math
from collections.abc import Callable

from minilab.lab.exercise import Case, Exercise, Misconception


def crossover(
    prompt: int, prompt_seconds: float, token_seconds: float, context_seconds: float
) -> int:
    """The fewest output tokens whose decoding takes longer than the prompt.

    token_seconds: of a generated token, whatever its context; context_seconds: more for each token
    that it reads. The first token comes from the prompt's own step, and the mean context of an
    answer is the prompt and half of the answer.
    """
    return _search(
        lambda n: (n - 1) * (token_seconds + context_seconds * (prompt + n / 2)) > prompt_seconds
    )


def _search(longer: Callable[[int], bool]) -> int:
    high = 1
    while not longer(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if longer(middle) else (middle, high)
    return high


CROSSOVER = Exercise(
    "7.1",
    "From prefill to decode",
    crossover,
    cases=(
        Case((2000, 0.027, 2.8e-5, 4.1e-8), name="an 8B model, 2,000 tokens"),
        Case((500, 0.0066, 2.8e-5, 4.1e-8), name="a short prompt"),
        Case((16000, 0.267, 2.8e-5, 4.1e-8), name="a long prompt: reading its KV dominates"),
        Case((1000, 0.25, 0.0009765625, 0.0), name="exactly on a token"),
    ),
    misconceptions=(
        Misconception(
            "first token decoded",
            lambda p, s, t, c: _search(lambda n: n * (t + c * (p + n / 2)) > s),
            "the prompt's own step gives the first token: an answer takes one decode step less",
        ),
        Misconception(
            "context does not grow",
            lambda p, s, t, c: _search(lambda n: (n - 1) * (t + c * p) > s),
            "an answer reads itself as well: on average half of it is there already",
        ),
        Misconception(
            "context at its end",
            lambda p, s, t, c: _search(lambda n: (n - 1) * (t + c * (p + n)) > s),
            "only the last token reads the whole answer; the mean is half of it",
        ),
        Misconception(
            "context forgotten",
            lambda p, s, t, c: _search(lambda n: (n - 1) * t > s),
            "each generated token reads the KV of its whole context, and that takes time",
        ),
        Misconception(
            "context forgotten, first token decoded",
            lambda p, s, t, c: math.ceil(s / t),
            "each generated token reads the KV of its whole context, and that takes time",
        ),
        Misconception(
            "as many as the prompt",
            lambda p, s, t, c: p,
            "a prompt's tokens are computed together and an answer's one by one: count seconds",
        ),
    ),
    hints=(
        "Both shares are multiplied by the same request rate, so compare seconds per request.",
        "An answer of n tokens takes n - 1 decode steps; its mean context is the prompt and n / 2.",
        "Seconds grow with n: try one n after the other, or halve an interval.",
    ),
    draw=lambda rng: Case(
        (
            rng.choice([100, 800, 3000, 12000, 30000]),
            rng.uniform(0.01, 0.5),
            rng.uniform(1e-5, 1e-4),
            rng.uniform(1e-8, 1e-7),
        )
    ),
    unit="tokens",
)
