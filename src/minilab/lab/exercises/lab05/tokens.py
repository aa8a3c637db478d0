"""Exercise 5.1: how many tokens of KV fit, from the model's shape and each GPU's memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from minilab.facts.kv_layout import KVGroup
from minilab.lab.exercise import Case, Exercise, Misconception

Shape = tuple[int, int, int, int]
DTYPES = {1: "fp8", 2: "bf16", 4: "fp32"}


def kv_tokens(shape: Shape, number_bytes: int, available: Sequence[int], block_size: int) -> int:
    """Tokens that every GPU can hold, in whole blocks.

    ``shape``: layers, KV heads, head dimension, latent (0 without MLA). ``available``: bytes for
    KV on each of the GPUs that share the model by tensor parallelism.
    """
    layers, heads, dim, latent = shape
    group = KVGroup(layers, heads, dim, latent)
    block = layers * group.entry_bytes(DTYPES[number_bytes], len(available)) * block_size
    return math.floor(min(available) / block) * block_size


def _tokens(
    shape: Shape,
    number_bytes: int,
    available: Sequence[int],
    block_size: int,
    *,
    sides: int = 2,
    pick: Callable[[Sequence[int]], int] = min,
    whole: bool = True,
    latent_split: bool = False,
    heads_split: bool = True,
    rounded_up: bool = True,
) -> float:
    layers, heads, dim, latent = shape
    gpus = len(available)
    if latent:
        per_layer = latent * number_bytes / (gpus if latent_split else 1)
    else:
        own = heads / gpus if heads_split else heads
        own = max(1, math.ceil(own)) if rounded_up else own
        per_layer = sides * own * dim * number_bytes
    room = pick(available)
    block = layers * per_layer * block_size
    return math.floor(room / block) * block_size if whole else room / (block / block_size)


def _draw(rng: random.Random) -> Case:
    latent = rng.choice([0, 0, 0, 576])
    shape = (rng.randint(12, 80), rng.choice([2, 4, 8]), rng.choice([64, 128]), latent)
    gpus = rng.choice([1, 2, 4, 8, 16])
    available = [rng.randint(2, 60) * 2**30 + rng.randint(0, 2**29) for _ in range(gpus)]
    return Case((shape, rng.choice([1, 2]), available, rng.choice([16, 32, 64])))


GIB = 2**30
TOKENS = Exercise(
    "5.1",
    "Tokens that fit",
    kv_tokens,
    cases=(
        Case(((32, 8, 128, 0), 2, [3 * GIB], 16), name="Llama-3.1-8B in bf16 on one GPU"),
        Case(((48, 8, 128, 0), 2, [9 * GIB, 8 * GIB], 16), name="two GPUs, one with less left"),
        Case(((61, 1, 576, 576), 1, [40 * GIB] * 8, 64), name="an MLA model in fp8 on 8 GPUs"),
        Case(((36, 2, 128, 0), 2, [5 * GIB] * 4, 16), name="2 KV heads on 4 GPUs"),
    ),
    misconceptions=(
        Misconception(
            "keys only",
            lambda s, n, a, b: _tokens(s, n, a, b, sides=1),
            "this counts the keys; the values are cached as well",
        ),
        Misconception(
            "the memory of all GPUs together",
            lambda s, n, a, b: _tokens(s, n, a, b, pick=sum),
            "each GPU keeps its own heads of *every* token: memory is not pooled, and the GPU with "
            "the least decides",
        ),
        Misconception(
            "the GPU with the most",
            lambda s, n, a, b: _tokens(s, n, a, b, pick=max),
            "the scheduler counts blocks once for all GPUs; a block must exist on each of them",
        ),
        Misconception(
            "heads not split",
            lambda s, n, a, b: _tokens(s, n, a, b, heads_split=False),
            "under tensor parallelism a GPU keeps only its share of the KV heads",
        ),
        Misconception(
            "latent split",
            lambda s, n, a, b: _tokens(s, n, a, b, latent_split=True),
            "an MLA latent is one vector that every head reads: each GPU keeps all of it",
        ),
        Misconception(
            "half a head",
            lambda s, n, a, b: _tokens(s, n, a, b, rounded_up=False),
            "a head is not cut: with more GPUs than KV heads, some keep the same one",
        ),
        Misconception(
            "not in blocks",
            lambda s, n, a, b: int(_tokens(s, n, a, b, whole=False)),
            "memory is given out in blocks; what is left over holds nothing",
        ),
    ),
    hints=(
        "First the bytes of one token on one GPU: layers x what a layer keeps of it there.",
        "A layer keeps keys and values of this GPU's heads; an MLA layer keeps the latent, whole.",
        "Then how many blocks the GPU with the least memory holds, and the tokens in them.",
    ),
    draw=_draw,
    unit="tokens",
)
