"""Attention over pages of latents in plain torch, the twin of mla_decode, and its cost."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minilab.kernels.paged_checks import Scale
from minilab.kernels.paged_ref import attend_ref, cached_tokens


def mla_decode_ref(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *,
    kv_lora_rank: int = 512,
    kv_scale: Scale = None,
) -> torch.Tensor:
    """The same in plain torch, in query's dtype (float64 too): multi-query attention."""
    out = query.new_zeros((*query.shape[:2], kv_lora_rank))
    for seq, length in enumerate(seq_lens.tolist()):
        keys = cached_tokens(kv_cache[:, :, None], block_tables[seq], length, kv_scale, query.dtype)
        out[seq] = attend_ref(query[seq, None], keys, keys[:, :, :kv_lora_rank], scale, None)[0]
    return out


def cost(
    seq_lens: Sequence[int],
    num_heads: int,
    kv_lora_rank: int = 512,
    rope: int = 64,
    *,
    kv_bytes: int = 2,
    query_bytes: int = 2,
) -> tuple[int, int]:
    """(bytes, FLOPs): cached rows and queries read once, outputs written; for each head and token a
    multiply-add per number of the row (scores) and of the latent (mixing)."""
    tokens, rows, width = sum(seq_lens), len(seq_lens) * num_heads, kv_lora_rank + rope
    moved = tokens * width * kv_bytes + rows * (width + kv_lora_rank) * query_bytes
    return moved, 2 * tokens * num_heads * (width + kv_lora_rank)
