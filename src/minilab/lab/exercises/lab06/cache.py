"""Exercise 6.1: what one token's KV occupies on all GPUs together, in slices or on ranks."""

from __future__ import annotations

import math
import random

from minilab.facts.kv_layout import KVGroup
from minilab.lab.exercise import Case, Exercise, Misconception

Shape = tuple[int, int, int, int, int]


def cache_bytes(shape: Shape, gpus: int, ranks: int) -> int:
    """Bytes (bf16) that one token's KV occupies on all ``gpus`` GPUs together.

    ``shape``: layers, KV heads, head dimension, latent, rope (the last two 0 without MLA). The GPUs
    form ``ranks`` attention ranks of ``gpus / ranks`` GPUs; a token lives on one rank, in slices.
    """
    layers, heads, dim, latent, rope = shape
    tp = gpus // ranks
    group = KVGroup(layers, heads, dim, latent, rope)
    return layers * group.entry_bytes("bf16", tp) * tp


def _bytes(
    shape: Shape,
    gpus: int,
    ranks: int,
    *,
    sides: int = 2,
    latent_sides: int = 1,
    with_rope: bool = True,
    copies: bool = True,
    everywhere: bool = False,
    per_gpu: bool = False,
    whole_heads: bool = True,
) -> float:
    layers, heads, dim, latent, rope = shape
    tp = gpus if everywhere else gpus // ranks
    if latent:
        numbers = latent_sides * (latent + (rope if with_rope else 0))
        held = float(numbers * (tp if copies else 1))
    else:
        own = heads / tp
        own = max(1, math.ceil(own)) if whole_heads else own
        held = sides * own * dim * tp
    return layers * 2 * held / (tp if per_gpu else 1)


def _draw(rng: random.Random) -> Case:
    mla = rng.random() < 0.5
    latent, rope = (rng.choice([256, 512]), 64) if mla else (0, 0)
    gpus = rng.choice([1, 2, 4, 8, 16])
    ranks = rng.choice([n for n in (1, 2, 4, 8, 16) if n <= gpus])
    heads, dim = (1, latent + rope) if mla else (rng.choice([2, 4, 8]), rng.choice([64, 128]))
    return Case(((rng.randint(24, 94), heads, dim, latent, rope), gpus, ranks))


CACHE = Exercise(
    "6.1",
    "Where the latent lies",
    cache_bytes,
    cases=(
        Case(((61, 1, 576, 512, 64), 8, 8), name="DeepSeek-V3, a rank per GPU"),
        Case(((61, 1, 576, 512, 64), 8, 1), name="DeepSeek-V3, in 8 slices"),
        Case(((61, 1, 576, 512, 64), 16, 4), name="DeepSeek-V3, 4 ranks of 4 GPUs"),
        Case(((94, 4, 128, 0, 0), 8, 1), name="4 KV heads in 8 slices"),
        Case(((61, 8, 128, 0, 0), 8, 1), name="8 KV heads in 8 slices"),
    ),
    misconceptions=(
        Misconception(
            "the latent is split",
            lambda s, g, r: _bytes(s, g, r, copies=False),
            "a latent is one vector that all heads read: each GPU of a rank keeps all of it",
        ),
        Misconception(
            "every GPU of every rank",
            lambda s, g, r: _bytes(s, g, r, everywhere=True),
            "a token lives on one rank only; the other ranks never see its KV",
        ),
        Misconception(
            "keys and values of the latent",
            lambda s, g, r: _bytes(s, g, r, latent_sides=2),
            "keys and values are both rebuilt from the one latent: it is kept once, not twice",
        ),
        Misconception(
            "without rope",
            lambda s, g, r: _bytes(s, g, r, with_rope=False),
            "the rotary part of the key cannot be rebuilt from the latent; it is cached beside it",
        ),
        Misconception(
            "on one GPU",
            lambda s, g, r: _bytes(s, g, r, per_gpu=True),
            "this is what one GPU keeps; the rank has several of them",
        ),
        Misconception(
            "half a head",
            lambda s, g, r: _bytes(s, g, r, whole_heads=False),
            "a head is not cut: with more GPUs than KV heads, some keep the same one",
        ),
        Misconception(
            "keys only",
            lambda s, g, r: _bytes(s, g, r, sides=1),
            "this counts the keys of a model without a latent; its values are cached as well",
        ),
    ),
    hints=(
        "A token belongs to one rank. How many GPUs does that rank have?",
        "What does each of them keep: its share of the KV heads, or the whole latent with rope?",
        "Multiply by layers, by bytes of a number, and by the GPUs of the rank.",
    ),
    draw=_draw,
    unit="bytes",
)
