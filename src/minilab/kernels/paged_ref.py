"""Attention over pages in plain torch, the twin of paged_decode and paged_prefill, and its cost.

Written for one sequence at a time, to be read; in float64 it is what the kernels are held against.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minilab.kernels import e4m3

NATIVE = torch.float8_e4m3fn


def cached_tokens(
    cache: torch.Tensor,
    blocks: torch.Tensor,
    length: int,
    scale: float | torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The first ``length`` tokens of a sequence as [length, num_kv_heads, head_size] of ``dtype``.

    ``blocks`` is its row of the block table; entries past the length are not looked at.
    """
    block_size = cache.shape[1]
    used = blocks[: -(-length // block_size)].long()
    tokens = cache[used].flatten(0, 1)[:length]
    if tokens.dtype == NATIVE:
        tokens = tokens.view(torch.uint8)
    tokens = e4m3.decode(tokens, dtype) if tokens.dtype == torch.uint8 else tokens.to(dtype)
    if scale is None:
        return tokens
    factor = torch.as_tensor(scale, dtype=dtype, device=cache.device)
    return tokens * factor.reshape(-1, 1)


def attend_ref(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    sliding_window: int | None,
) -> torch.Tensor:
    """Causal attention of the last tokens of one sequence.

    Args:
        query: [q_len, num_heads, head_size], the last ``q_len`` tokens of the sequence.
        keys, values: [length, num_kv_heads, head_size].
        scale: factor of q·k.
        sliding_window: how many tokens, itself included, a token sees; None for all before it.

    Returns:
        [q_len, num_heads, head_size]; zeros where a token sees nothing (length 0).
    """
    q_len, num_heads, _ = query.shape
    length, num_kv_heads, _ = keys.shape
    group = num_heads // num_kv_heads
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * scale
    position = torch.arange(length - q_len, length, device=query.device)[:, None]
    token = torch.arange(length, device=query.device)[None, :]
    seen = token <= position
    if sliding_window:
        seen &= token > position - sliding_window
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    # A row that sees nothing is 0/0.
    weights = torch.where(seen, weights, 0.0)
    return torch.einsum("hqk,khd->qhd", weights, values)


def attention_cost(
    q_lens: Sequence[int],
    seq_lens: Sequence[int],
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    *,
    kv_bytes: int = 2,
    query_bytes: int = 2,
    sliding_window: int | None = None,
) -> tuple[int, int]:
    """(bytes, FLOPs) no kernel can do without.

    Each seen token's K and V read once, queries read, outputs written; two multiply-adds per query
    head, dimension and pair of a query token and a token that it sees.
    """
    pairs = tokens = 0
    for q_len, length in zip(q_lens, seq_lens, strict=True):
        window = sliding_window or length
        pairs += sum(min(position + 1, window) for position in range(length - q_len, length))
        tokens += min(length, window + q_len - 1)
    rows = sum(q_lens) * num_heads * head_size
    moved = 2 * tokens * num_kv_heads * head_size * kv_bytes + 2 * rows * query_bytes
    return moved, 4 * pairs * num_heads * head_size
