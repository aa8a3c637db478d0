"""Exercise 6.2: the bytes that a GPU sends and gets back in a step, for its tokens' experts."""

from __future__ import annotations

from minilab.facts.all_to_all import combine_bytes, dispatch_bytes
from minilab.lab.exercise import Case, Exercise, Misconception


def exchange_bytes(
    tokens: int, hidden: int, top_k: int, layers: int, gpus: int, fp8: bool
) -> float:
    """Bytes of dispatch and combine over the wire for one rank's ``tokens``, all MoE layers.

    Experts are chosen evenly over ``gpus`` GPUs; a copy for an expert on the token's own GPU
    crosses no wire. FP8 dispatch has a 4-byte scale per 128 numbers; answers come back in bf16.
    """
    send = dispatch_bytes(hidden, top_k, "fp8" if fp8 else "bf16")
    return tokens * layers * (send + combine_bytes(hidden, top_k)) * (gpus - 1) / gpus


def _bytes(
    tokens: int,
    hidden: int,
    top_k: int,
    layers: int,
    gpus: int,
    fp8: bool,
    *,
    scales: bool = True,
    back: float = 2.0,
    leaves: bool = True,
    scale_each: bool = False,
) -> float:
    scale = 4.0 * hidden if scale_each else 4 * hidden / 128
    send = (hidden + (scale if scales else 0)) if fp8 else 2 * hidden
    away = (gpus - 1) / gpus if leaves else 1.0
    return tokens * layers * top_k * (send + back * hidden) * away


EXCHANGE = Exercise(
    "6.2",
    "Dispatch and combine",
    exchange_bytes,
    cases=(
        Case((128, 7168, 8, 58, 32, True), name="DeepSeek-V3, EP32, 128 tokens"),
        Case((1, 7168, 8, 58, 256, True), name="one token, EP256"),
        Case((128, 7168, 8, 58, 32, False), name="the same in bf16"),
        Case((64, 2048, 8, 48, 8, True), name="Qwen3-30B-A3B, EP8"),
        Case((64, 4096, 2, 32, 1, True), name="a single GPU"),
    ),
    misconceptions=(
        Misconception(
            "without the scales",
            lambda n, h, k, m, g, f: _bytes(n, h, k, m, g, f, scales=False),
            "FP8 numbers travel with their scales, one for each block of 128",
        ),
        Misconception(
            "a scale per number",
            lambda n, h, k, m, g, f: _bytes(n, h, k, m, g, f, scale_each=True),
            "a scale belongs to a block of numbers, not to each",
        ),
        Misconception(
            "FP8 both ways",
            lambda n, h, k, m, g, f: _bytes(n, h, k, m, g, f, back=1.0),
            "only dispatch is in FP8: answers are summed, and come back in bf16",
        ),
        Misconception(
            "FP8 both ways, with scales",
            lambda n, h, k, m, g, f: _bytes(n, h, k, m, g, f, back=1 + 4 / 128 if f else 2.0),
            "answers are counted like tokens here, in FP8 with scales: they are still to be "
            "summed, and come back in bf16",
        ),
        Misconception(
            "dispatch only",
            lambda n, h, k, m, g, f: _bytes(n, h, k, m, g, f, back=0.0),
            "the experts' answers come back as well, and they are the larger half",
        ),
        Misconception(
            "one copy a token",
            lambda n, h, k, m, g, f: _bytes(n, h, 1, m, g, f),
            "each chosen expert gets a copy of the token",
        ),
        Misconception(
            "one layer",
            lambda n, h, k, m, g, f: _bytes(n, h, k, 1, g, f),
            "this is one layer; a token passes every MoE layer in a step",
        ),
        Misconception(
            "own GPU counted",
            lambda n, h, k, m, g, f: _bytes(n, h, k, m, g, f, leaves=False),
            "one expert in so many lies on the token's own GPU: that copy crosses no wire",
        ),
    ),
    hints=(
        "First one copy of one token: its bytes on the way out, and on the way back.",
        "Then copies per token, tokens, layers.",
        "Which share of the copies stays at home if every GPU is equally likely?",
    ),
    draw=lambda rng: Case(
        (
            rng.randint(1, 512),
            128 * rng.randint(8, 64),
            rng.choice([2, 4, 6, 8]),
            rng.randint(12, 60),
            rng.choice([2, 4, 8, 16, 32, 64]),
            rng.random() < 0.6,
        )
    ),
    unit="bytes",
)
