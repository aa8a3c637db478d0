"""Attention over pages in plain torch: the twin of paged_decode and paged_prefill.

Written for one sequence at a time, to be read; in float64 it is what the kernels are held against.
"""

from __future__ import annotations

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
