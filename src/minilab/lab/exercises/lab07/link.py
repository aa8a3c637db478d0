"""Exercise 7.2: the bandwidth below which moving a prompt's KV takes longer than the prompt."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception


def slowest_link(
    prompt: int, kv_bytes: float, prompt_seconds: float, latency: float
) -> float | None:
    """Bytes/s at which latency + bytes / bandwidth equals the prompt's time.

    None if no bandwidth is enough, since the latency alone takes as long.
    """
    left = prompt_seconds - latency
    return prompt * kv_bytes / left if left > 0 else None


def _or_none(prompt: float, kv: float, left: float) -> float | None:
    return prompt * kv / left if left > 0 else None


LINK = Exercise(
    "7.2",
    "From compute to KV transfer",
    slowest_link,
    cases=(
        Case((8000, 131072.0, 0.125, 5e-5), name="an 8B model, 8,000 tokens"),
        Case((16, 131072.0, 0.0072, 0.004), name="a short prompt over a far link"),
        Case((16, 131072.0, 0.0072, 0.05), name="the latency is longer than the prompt"),
        Case((8000, 40960.0, 0.7, 1e-5), name="a larger model over eight GPUs, per GPU"),
    ),
    misconceptions=(
        Misconception(
            "latency forgotten",
            lambda p, kv, s, lat: p * kv / s,
            "the latency passes before the first byte; only the rest of the time moves bytes",
        ),
        Misconception(
            "latency added",
            lambda p, kv, s, lat: p * kv / (s + lat),
            "the latency is part of the transfer, so it takes from the time for bytes",
        ),
        Misconception(
            "never None",
            lambda p, kv, s, lat: p * kv / abs(s - lat),
            "no bandwidth makes a latency shorter: what if it alone takes as long as the prompt?",
        ),
        Misconception(
            "bits",
            lambda p, kv, s, lat: _or_none(p, 8 * kv, s - lat),
            "a link is sold in bits and asked for here in bytes per second",
        ),
        Misconception(
            "keys and values again",
            lambda p, kv, s, lat: _or_none(p, 2 * kv, s - lat),
            "the bytes per token hold keys and values of all layers already",
        ),
        Misconception(
            "one token",
            lambda p, kv, s, lat: _or_none(1, kv, s - lat),
            "the KV of the whole prompt moves, not that of one token",
        ),
    ),
    hints=(
        "A transfer takes the latency, and then bytes over bandwidth.",
        "Set it equal to the prompt's time and solve for the bandwidth.",
        "What if the latency leaves no time at all?",
    ),
    draw=lambda rng: Case(
        (
            rng.choice([16, 500, 4000, 32000]),
            rng.choice([16384.0, 40960.0, 131072.0, 327680.0]),
            rng.uniform(0.005, 0.5),
            rng.choice([1e-5, 1e-3, 0.02]),
        )
    ),
    unit="bytes/s",
)
