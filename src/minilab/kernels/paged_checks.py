"""Checks of what the attention kernels and kv_write share: caches, block tables, FP8 scales."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.kernels import checks

FP8 = (torch.uint8, torch.float8_e4m3fn)
HEAD_SIZES = (16, 32, 64, 128)

Scale = float | torch.Tensor | None


@dataclass(frozen=True)
class Pages:
    """Checked arguments of an attention over pages: what the launch and the reference share."""

    shapes: checks.Shapes
    k_scale: torch.Tensor | None
    k_step: int
    v_scale: torch.Tensor | None
    v_step: int
    scale: float
    window: int


def check_attention(
    query: torch.Tensor,
    rows: str,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float | None,
    k_scale: Scale,
    v_scale: Scale,
    sliding_window: int | None,
) -> Pages:
    """Arguments that paged_decode and paged_prefill share; ``rows`` names query's first dimension.

    Raises:
        ValueError: as the wrappers' docstrings say.
    """
    shapes = checks.Shapes()
    shapes.check("query", query, f"{rows} num_heads head_size", checks.FLOATS, dense_from=1)
    shapes.check("block_tables", block_tables, "num_seqs max_blocks", (torch.int32,), dense_from=1)
    shapes.check("seq_lens", seq_lens, "num_seqs", (torch.int32,))
    check_caches(shapes, key_cache, value_cache, query.dtype)
    if shapes["num_heads"] % shapes["num_kv_heads"]:
        raise ValueError(
            f"query has {shapes['num_heads']} heads; it must have a multiple of the cache's"
            f" {shapes['num_kv_heads']}"
        )
    if sliding_window is not None:
        checks.at_least("sliding_window", sliding_window, 1)
    k_scale, k_step = head_scale("k_scale", k_scale, key_cache, shapes)
    v_scale, v_step = head_scale("v_scale", v_scale, value_cache, shapes)
    scale = shapes["head_size"] ** -0.5 if scale is None else float(scale)
    return Pages(shapes, k_scale, k_step, v_scale, v_step, scale, sliding_window or 0)


def check_caches(
    shapes: checks.Shapes, key_cache: torch.Tensor, value_cache: torch.Tensor, dtype: torch.dtype
) -> None:
    """Both caches: [num_blocks, block_size, num_kv_heads, head_size], of ``dtype`` or FP8."""
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        dims = "num_blocks block_size num_kv_heads head_size"
        shapes.check(name, cache, dims, (dtype, *FP8), dense_from=1)
    if key_cache.dtype != value_cache.dtype or key_cache.stride() != value_cache.stride():
        raise ValueError(
            f"value_cache is {checks.short(value_cache.dtype)} with strides {value_cache.stride()};"
            f" it must be {checks.short(key_cache.dtype)} with key_cache's {key_cache.stride()}"
        )
    if shapes["head_size"] not in HEAD_SIZES:
        allowed = ", ".join(str(size) for size in HEAD_SIZES)
        raise ValueError(f"head_size is {shapes['head_size']}; it must be one of {allowed}")


def head_scale(
    name: str, scale: Scale, cache: torch.Tensor, shapes: checks.Shapes
) -> tuple[torch.Tensor | None, int]:
    """A scale as (fp32 tensor, step from head to head); (None, 0) for 1. Only FP8 caches have any.

    Raises:
        ValueError: the cache is not FP8, or ``scale`` is neither one number nor one per KV head.
    """
    if scale is None:
        return None, 0
    if cache.dtype not in FP8:
        raise ValueError(
            f"{name} is given, but the cache is {checks.short(cache.dtype)}; only FP8 is scaled"
        )
    if not isinstance(scale, torch.Tensor):
        if not scale > 0:
            raise ValueError(f"{name} is {scale}; it must be above 0")
        return torch.full((1,), float(scale), dtype=torch.float32, device=cache.device), 0
    heads = shapes["num_kv_heads"]
    flat = scale.reshape(1) if scale.dim() == 0 else scale
    if flat.dtype != torch.float32 or flat.dim() != 1 or flat.numel() not in (1, heads):
        raise ValueError(
            f"{name} is {checks.short(scale.dtype)} of shape {tuple(scale.shape)};"
            f" it must be float32 of shape [1] or [num_kv_heads] = [{heads}]"
        )
    shapes.check(name, flat, str(flat.numel()), (torch.float32,))
    return flat, int(flat.numel() > 1)


def check_tables(
    block_tables: torch.Tensor, seq_lens: torch.Tensor, num_blocks: int, block_size: int
) -> None:
    """Every block that a sequence uses exists. Reads the values (waits for a GPU).

    Raises:
        ValueError: a length is negative or longer than its table; a block id is out of range.
    """
    width = block_tables.shape[1]
    if not seq_lens.numel():
        return
    low, high = int(seq_lens.min()), int(seq_lens.max())
    if low < 0 or high > width * block_size:
        raise ValueError(
            f"seq_lens goes from {low} to {high}; it must be within 0 and"
            f" {width} blocks of {block_size} tokens = {width * block_size}"
        )
    columns = torch.arange(width, device=block_tables.device)
    used = columns[None, :] * block_size < seq_lens[:, None]
    wrong = used & ((block_tables < 0) | (block_tables >= num_blocks))
    if wrong.any():
        row, column = (int(index) for index in wrong.nonzero()[0])
        raise ValueError(
            f"block_tables[{row}, {column}] is {int(block_tables[row, column])};"
            f" it must be within 0 and num_blocks - 1 = {num_blocks - 1}"
        )


def check_query_lens(cu: torch.Tensor, seq_lens: torch.Tensor, tokens: int, longest: int) -> None:
    """Every sequence has 1 to ``longest`` of ``tokens`` query tokens, all of them cached.

    Raises:
        ValueError: it has not, or ``cu_seqlens_q`` does not cover the query.
    """
    q_lens = cu.diff()
    if int(cu[0]) != 0 or int(cu[-1]) != tokens:
        raise ValueError(
            f"cu_seqlens_q goes from {int(cu[0])} to {int(cu[-1])};"
            f" it must go from 0 to query's {tokens} tokens"
        )
    for seq, (q_len, length) in enumerate(zip(q_lens.tolist(), seq_lens.tolist(), strict=True)):
        limit = min(longest, length)
        if not 1 <= q_len <= limit:
            raise ValueError(
                f"cu_seqlens_q gives sequence {seq} {q_len} query tokens; it must be within 1 and"
                f" {limit} (max_seqlen_q is {longest}, seq_lens[{seq}] is {length})"
            )
