"""Exercise 3b.3: from which length on a tier pays."""

from __future__ import annotations

import math

from minilab.lab.exercise import Case, Exercise, Misconception


def break_even(
    kv_bytes: float, bandwidth: float, latency: float, seconds_per_token: float
) -> int | None:
    """The fewest tokens for which fetching is faster than computing; None if there are none."""
    saved = seconds_per_token - kv_bytes / bandwidth
    return math.floor(latency / saved) + 1 if saved > 0 else None


def _saved(kv: float, bw: float, sec: float) -> float:
    return sec - kv / bw


BREAK_EVEN = Exercise(
    "3b.3",
    "From which length on a tier pays",
    break_even,
    cases=(
        Case((131072.0, 16384e6, 1e-3, 24e-6), name="an 8B model and a PCIe link"),
        Case((131072.0, 4096e6, 1e-3, 24e-6), name="a slow disk"),
        Case((65536.0, 8192e6, 3e-4, 16e-6), name="half of the heads"),
        Case((1000.0, 1e9, 4e-6, 2e-6), name="exactly on a token"),
    ),
    misconceptions=(
        Misconception(
            "never None",
            lambda kv, bw, lat, sec: (
                math.floor(lat / abs(_saved(kv, bw, sec))) + 1 if _saved(kv, bw, sec) else 0
            ),
            "each fetched token costs more than a computed one: no length ever pays",
        ),
        Misconception(
            "bytes forgotten",
            lambda kv, bw, lat, sec: math.floor(lat / sec) + 1 if kv / bw < sec else None,
            "the bytes take time too: each token saves less than it takes to compute",
        ),
        Misconception(
            "ties",
            lambda kv, bw, lat, sec: (
                math.ceil(lat / _saved(kv, bw, sec)) if _saved(kv, bw, sec) > 0 else None
            ),
            "at equal times nothing is won yet; one token more is needed",
        ),
        Misconception(
            "not whole",
            lambda kv, bw, lat, sec: lat / _saved(kv, bw, sec) if _saved(kv, bw, sec) > 0 else None,
            "tokens are whole",
        ),
        Misconception(
            "latency forgotten",
            lambda kv, bw, lat, sec: 1 if _saved(kv, bw, sec) > 0 else None,
            "the latency has to be earned back first",
        ),
    ),
    hints=(
        "What does one token save: its computing time less its bytes over bandwidth.",
        "If that is not above zero, there is no such length.",
        "Otherwise the savings of n tokens must exceed the latency.",
    ),
    draw=lambda rng: Case(
        (
            rng.choice([16384.0, 65536.0, 131072.0, 524288.0]),
            rng.choice([2, 5, 12, 25, 50]) * 1e9,
            rng.choice([2e-5, 1.5e-4, 1.1e-3]),
            rng.choice([4e-6, 21e-6, 90e-6]),
        )
    ),
    unit="tokens",
)
