"""Limits: how many sequences fit at once, and how long they may be, on GPUs whose KV is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minilab.facts.capacity_plan import Deployment
from minilab.facts.capacity_ranks import Rank
from minilab.facts.errors import InputError
from minilab.facts.models import ModelSpec


def max_concurrency(deployment: Deployment, found: Sequence[Rank], length: int) -> float:
    """Sequences of ``length`` tokens that fit at once in one replica, as vLLM prints it ("1.56x").

    Blocks over blocks per request where every layer keeps every token; else bytes over the bytes
    of a sequence, windows and states counted as they fill.
    """
    if length < 1:
        raise InputError(f"max_len is {length}; give a whole number of tokens, 1 or more")
    d = deployment
    if uniform(d.model):
        blocks = min(rank.tokens(d.block_size) for rank in found) // d.block_size
        return blocks / math.ceil(length / d.block_size)
    return max(0.0, min(rank.available / rank.sequence_bytes(length, d) for rank in found))


def max_length(deployment: Deployment, found: Sequence[Rank], sequences: int) -> int | None:
    """Longest length, in whole blocks, at which ``sequences`` fit at once in one replica.

    None where nothing grows with the length. The model's own limit is not applied.
    """
    if sequences < 1:
        raise InputError(f"concurrency is {sequences}; give a whole number of 1 or more")
    lengths = [_rank_length(deployment, rank, sequences) for rank in found]
    known = [length for length in lengths if length is not None]
    return min(known) if known else None


def uniform(model: ModelSpec) -> bool:
    """Every layer keeps every token."""
    return not (model.window_layers or model.linear_layers or model.strides)


def _rank_length(d: Deployment, rank: Rank, sequences: int) -> int | None:
    if uniform(d.model):
        return rank.tokens(d.block_size) // d.block_size // sequences * d.block_size
    share = rank.available / sequences
    grows = rank.model.full_kv_bytes_per_token(d.kv_dtype, d.attention_tp) + rank.extra_per_token
    horizon = max(rank.model.window, d.block_size)
    if grows == 0 and rank.sequence_bytes(horizon, d) <= share:
        return None
    fits, too_long = 0, 1
    while rank.sequence_bytes(too_long * d.block_size, d) <= share:
        fits, too_long = too_long, too_long * 2
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if rank.sequence_bytes(middle * d.block_size, d) <= share:
            fits = middle
        else:
            too_long = middle
    return fits * d.block_size
