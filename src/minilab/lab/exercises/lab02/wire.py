"""Exercise 2.2: what it costs to send a prompt's KV."""

from __future__ import annotations

import math

from minilab.lab.exercise import Case, Exercise, Misconception


def transfer(
    tokens: int, kv_bytes: int, layers: int, block: int, bandwidth: float, alpha: float
) -> float:
    """Seconds: ``alpha`` for each block of each layer, and the bytes over the bandwidth."""
    pieces = math.ceil(tokens / block) * layers
    return alpha * pieces + tokens * kv_bytes / bandwidth


WIRE = Exercise(
    "2.2",
    "What it costs to send a prompt's KV",
    transfer,
    cases=(
        Case((4000, 131072, 32, 16, 50e9, 1e-6), name="an 8B model over InfiniBand"),
        Case((4001, 131072, 32, 16, 50e9, 1e-6), name="a token into the next block"),
        Case((100, 32768, 16, 16, 1.25e9, 2e-5), name="a 1B model over Ethernet, dear pieces"),
    ),
    misconceptions=(
        Misconception(
            "bytes alone",
            lambda n, b, la, s, w, a: n * b / w,
            "this is the bytes' time; every piece of memory has to be named to the card as well",
        ),
        Misconception(
            "one piece for all",
            lambda n, b, la, s, w, a: a + n * b / w,
            "the KV is no single piece: each block of each layer lies somewhere else",
        ),
        Misconception(
            "bits",
            lambda n, b, la, s, w, a: a * math.ceil(n / s) * la + 8 * n * b / w,
            "the bandwidth is given in bytes per second, not in bits",
        ),
        Misconception(
            "blocks, not layers",
            lambda n, b, la, s, w, a: a * math.ceil(n / s) + n * b / w,
            "a block of tokens lies in as many places as there are layers",
        ),
        Misconception(
            "bytes once per layer",
            lambda n, b, la, s, w, a: a * math.ceil(n / s) * la + la * n * b / w,
            "the bytes of all layers are in the figure per token already",
        ),
        Misconception(
            "a piece per token",
            lambda n, b, la, s, w, a: a * n * la + n * b / w,
            "the tokens of a block lie side by side: one piece, not one for each token",
        ),
        Misconception(
            "half a block",
            lambda n, b, la, s, w, a: a * (n / s) * la + n * b / w,
            "a block that is not full is a piece all the same",
        ),
        Misconception(
            "last block dropped",
            lambda n, b, la, s, w, a: a * (n // s) * la + n * b / w,
            "the tokens that do not fill a block have to be sent too",
        ),
        Misconception(
            "the larger of the two",
            lambda n, b, la, s, w, a: max(a * math.ceil(n / s) * la, n * b / w),
            "naming the pieces and moving the bytes are added, not hidden behind each other",
        ),
    ),
    hints=(
        "Count the pieces first: how many blocks, and in how many places does each lie?",
        "The time is a sum of two terms, one for pieces and one for bytes.",
    ),
    draw=lambda rng: Case(
        (
            rng.randint(1, 30_000),
            rng.choice([32768, 131072, 163840, 819200]),
            rng.choice([16, 32, 40, 80]),
            rng.choice([8, 16, 64]),
            rng.choice([1.25e9, 12.5e9, 50e9, 450e9]),
            rng.choice([1e-6, 5e-6, 2e-5]),
        )
    ),
    unit="s",
)
