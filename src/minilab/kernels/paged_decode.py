"""paged_decode: one query token per sequence attends over its pages of KV (flash decoding).

A decode step reads every cached token once and does next to nothing with it, so it is bound by
memory bandwidth. Two things keep a GPU reading: all query heads of a group share one pass over
their KV head, and a long sequence is split between several programs, each of which leaves a partial
result that a second, small kernel combines.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from minilab.kernels import checks, paged_checks, tiles
from minilab.kernels.device import Backend, check_native_fp8, choose_backend, sm_count, tl, triton
from minilab.kernels.paged_ref import attend_ref, attention_cost, cached_tokens
from minilab.kernels.spec import ARCHS, NARROW_DOT, Config, Spec, config_for


@triton.jit
def _split_kernel(
    partial, lse, query, key_cache, value_cache, block_tables, seq_lens, k_scale, v_scale,
    scale, stride_query, stride_block, stride_table, num_splits,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr, K_STEP: tl.constexpr, V_STEP: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, USE_DOT: tl.constexpr,
):  # fmt: skip
    """One program: one sequence, BLOCK_G query heads of one KV head, one share of the tokens."""
    seq, chunk, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    chunks: tl.constexpr = (GROUP + BLOCK_G - 1) // BLOCK_G
    kv_head = chunk // chunks
    member = chunk % chunks * BLOCK_G + tl.arange(0, BLOCK_G)
    heads, dims = kv_head * GROUP + member, tl.arange(0, HEAD)
    real = (member < GROUP)[:, None]
    q = tl.load(
        query + seq * stride_query + heads[:, None] * HEAD + dims[None, :], mask=real, other=0.0
    ).to(TYPE)

    # Whole tiles, dealt evenly; a share may be empty when there are more shares than tiles.
    length = tl.load(seq_lens + seq)
    begin = tl.maximum(length - WINDOW, 0) if WINDOW else 0
    share = tl.cdiv(tl.cdiv(length - begin, BLOCK_N), num_splits) * BLOCK_N
    first = begin + split * share
    last = tl.minimum(first + share, length)

    if k_scale is not None:
        scale *= tl.load(k_scale + kv_head * K_STEP)
    top = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    mixed = tl.zeros([BLOCK_G, HEAD], tl.float32)
    table = block_tables + seq * stride_table
    for start in range(first, last, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        inside = tokens < last
        rows = tiles.page_rows(table, tokens, inside, stride_block, KV_HEADS * HEAD, BLOCK_SIZE)
        k = tiles.load_rows(key_cache + kv_head * HEAD, rows, dims, inside, TYPE)
        scores = tiles.scores_of(q, k, USE_DOT) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        weights, top, total, shrink = tiles.softmax_step(scores, top, total)
        v = tiles.load_rows(value_cache + kv_head * HEAD, rows, dims, inside, TYPE)
        mixed = mixed * shrink[:, None] + tiles.mix_values(weights, v, USE_DOT)

    if v_scale is not None:
        mixed *= tl.load(v_scale + kv_head * V_STEP)
    at = (seq * KV_HEADS * GROUP + heads) * num_splits + split
    total = tl.where(total > 0, total, 1.0)
    tl.store(partial + at[:, None] * HEAD + dims[None, :], mixed / total[:, None], mask=real)
    tl.store(lse + at, top + tl.log2(total), mask=member < GROUP)


def paged_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float | None = None,
    *,
    k_scale: paged_checks.Scale = None,
    v_scale: paged_checks.Scale = None,
    sliding_window: int | None = None,
    num_splits: int | None = None,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """softmax(q·K · scale) · V over each sequence's pages, for its newest token.

    Args:
        query: [num_seqs, num_heads, head_size], fp16, bf16 or fp32; rows may have any stride.
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_size] (vLLM's and
            FlashInfer's NHD), equal strides, blocks dense; query's dtype, or FP8 e4m3 as uint8
            (portable codec) or float8_e4m3fn (hardware conversion, capability 8.9 and up).
        block_tables: [num_seqs, max_blocks] int32; entries past a length are not looked at.
        seq_lens: [num_seqs] int32, cached tokens, the newest included; 0 gives zeros.
        scale: factor of q·k, 1/sqrt(head_size) if None.
        k_scale, v_scale: what stored FP8 is multiplied by: a number, or fp32 [1] or [num_kv_heads].
        sliding_window: newest tokens that are seen, the query's own included; None for all.
        num_splits: programs that share one sequence, 1 to 64; None to fill the GPU.
        config: tiles to use instead of CONFIGS.
        backend: "auto", "triton", "interpreter" or "reference".
        out: [num_seqs, num_heads, head_size] of query's dtype, to write into.
        debug: also read block_tables and seq_lens on a GPU to check them (waits for it).

    Returns:
        ``out``, or a new tensor like it.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    pages = paged_checks.check_attention(
        query, "num_seqs", key_cache, value_cache, block_tables, seq_lens,
        scale, k_scale, v_scale, sliding_window,
    )  # fmt: skip
    sizes = pages.shapes
    if checks.reads_values(block_tables, debug):
        paged_checks.check_tables(block_tables, seq_lens, sizes["num_blocks"], sizes["block_size"])
    check_native_fp8("key_cache", key_cache, backend)
    chosen = choose_backend("paged_decode", query.device, backend)
    out = checks.output(out, query.shape, query.dtype, query)
    if chosen.name == "reference":
        return out.copy_(
            paged_decode_ref(
                query, key_cache, value_cache, block_tables, seq_lens, pages.scale,
                k_scale=pages.k_scale, v_scale=pages.v_scale, sliding_window=sliding_window,
            )
        )  # fmt: skip
    config = config or _config_of(query.dtype, chosen)
    num_seqs, heads, head = query.shape
    kv_heads, group = sizes["num_kv_heads"], heads // sizes["num_kv_heads"]
    chunks = kv_heads * -(-group // config.tiles["BLOCK_G"])
    if num_splits is None:
        reach = min(sliding_window or 1 << 30, block_tables.shape[1] * sizes["block_size"])
        num_splits = _splits_for(num_seqs * chunks, reach, sm_count(query.device))
    if not 1 <= num_splits <= tiles.MAX_SPLITS:
        raise ValueError(f"num_splits is {num_splits}; it must be within 1 and {tiles.MAX_SPLITS}")
    if not num_seqs:
        return out
    partial = query.new_empty((num_seqs, heads, num_splits, head), dtype=torch.float32)
    lse = query.new_empty((num_seqs, heads, num_splits), dtype=torch.float32)
    _split_kernel[(num_seqs, chunks, num_splits)](
        partial, lse, query, key_cache, value_cache, block_tables, seq_lens,
        pages.k_scale, pages.v_scale, pages.scale * tiles.LOG2_E,
        query.stride(0), key_cache.stride(0), block_tables.stride(0), num_splits,
        kv_heads, group, head, sizes["block_size"], pages.window, pages.k_step, pages.v_step,
        tiles.compute_type(query.dtype, chosen), **config.tiles,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    tiles.combine_kernel[(num_seqs * heads,)](
        out, partial, lse, num_splits, head, triton.next_power_of_2(num_splits),
        num_warps=COMBINE[75].warps,
    )  # fmt: skip
    return out


def _config_of(dtype: torch.dtype, chosen: Backend) -> Config:
    """fp32 in full precision has no tensor-core path: on a GPU it takes the tiles without dot."""
    plain = dtype == torch.float32 and chosen.name == "triton"
    return config_for(FP32 if plain else CONFIGS, chosen.capability)


def _splits_for(programs: int, tokens: int, sms: int) -> int:
    """Splits so that every SM has about four programs, none with fewer than 256 tokens."""
    wanted = -(-4 * sms // max(programs, 1))
    return max(1, min(wanted, tokens // 256, tiles.MAX_SPLITS))


def paged_decode_ref(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *,
    k_scale: paged_checks.Scale = None,
    v_scale: paged_checks.Scale = None,
    sliding_window: int | None = None,
) -> torch.Tensor:
    """The same in plain torch, in query's dtype (float64 too)."""
    out = torch.zeros_like(query, memory_format=torch.contiguous_format)
    for seq, length in enumerate(seq_lens.tolist()):
        keys = cached_tokens(key_cache, block_tables[seq], length, k_scale, query.dtype)
        values = cached_tokens(value_cache, block_tables[seq], length, v_scale, query.dtype)
        out[seq] = attend_ref(query[seq, None], keys, values, scale, sliding_window)[0]
    return out


def cost(
    seq_lens: Sequence[int], num_heads: int, num_kv_heads: int, head_size: int, **options: Any
) -> tuple[int, int]:
    """(bytes, FLOPs) no kernel can do without: ``attention_cost`` of one query token each."""
    ones = [1] * len(seq_lens)
    return attention_cost(ones, seq_lens, num_heads, num_kv_heads, head_size, **options)


# Without tensor cores (75: Triton emits none for it) a tile is what 256 threads load at once.
_PLAIN = Config({"BLOCK_G": 4, "BLOCK_N": 16, "USE_DOT": False}, warps=8, stages=1)
_TENSOR = Config({"BLOCK_G": 16, "BLOCK_N": 64, "USE_DOT": True}, warps=4, stages=3)
CONFIGS = {75: _PLAIN, **dict.fromkeys(ARCHS[1:], _TENSOR)}
FP32 = dict.fromkeys(ARCHS, Config({**_PLAIN.tiles, "BLOCK_N": 8}, warps=8, stages=1))
COMBINE = dict.fromkeys(CONFIGS, Config({"SPLITS": tiles.MAX_SPLITS}, warps=4, stages=1))


def _spec(label: str, element: str, cache: str, shape: Any = None, **more: Any) -> Spec:
    types, constants = tiles.spec_arguments(element, cache)
    types |= {"partial": "*fp32", "lse": "*fp32", "num_splits": "i32"}
    kv_bytes = 1 if cache != element else 4 if element == "fp32" else 2
    return Spec(
        f"paged_decode {label}", _split_kernel, types, constants | (shape or {}),
        **{"configs": CONFIGS, "expect": NARROW_DOT, **more}, any_value=("num_splits",),
        case="64 sequences of 4096 tokens, 32/8 heads of 128", dtype=element,
        cost=None if shape else cost([4096] * 64, 32, 8, 128, kv_bytes=kv_bytes),
    )  # fmt: skip


AOT = (
    _spec("fp16", "fp16", "fp16", fast=True),
    _spec("fp16 64, window", "fp16", "fp16", shape={"HEAD": 64, "GROUP": 8, "WINDOW": 9}),
    _spec("bf16", "bf16", "bf16"),
    _spec("fp32", "fp32", "fp32", configs=FP32, expect={}),
    _spec("fp8 portable", "fp16", "u8", fast=True),
    _spec("fp8 native", "fp16", "fp8e4nv", refused=(75, 80)),
    Spec(
        "paged_decode combine", tiles.combine_kernel,
        {"out": "*fp16", "partial": "*fp32", "lse": "*fp32", "num_splits": "i32"},
        {"HEAD": 128}, COMBINE, any_value=("num_splits",),
    ),
)  # fmt: skip
