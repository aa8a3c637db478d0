"""paged_prefill: several query tokens per sequence attend over its pages of KV.

A prefill chunk on top of a cached prefix, or the drafts of a speculative step being verified: query
i of q_len stands at position seq_len - q_len + i and sees what is not after it. The rows of a tile
are query tokens times the heads that share a KV head, so that five drafts and four heads fill
twenty rows and read the cache once.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks, paged_checks, tiles
from minilab.kernels.device import check_native_fp8, choose_backend, tl, triton
from minilab.kernels.paged_ref import attend_ref, attention_cost, cached_tokens
from minilab.kernels.spec import NARROW_DOT, WIDE_DOT, Config, Spec, config_for


@triton.jit
def _attend_tile(
    start, end, position, q, key_cache, value_cache, table, stride_block, scale, top, total, mixed,
    ROW: tl.constexpr, HEAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr, TYPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Fold the tokens start .. start + BLOCK_N into the rows' running softmax."""
    tokens, dims = start + tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    inside = tokens < end
    rows = tiles.page_rows(table, tokens, inside, stride_block, ROW, BLOCK_SIZE)
    k = tiles.load_rows(key_cache, rows, dims, inside, TYPE)
    scores = tiles.scores_of(q, k, True) * scale
    if MASKED:
        seen = inside[None, :] & (tokens[None, :] <= position[:, None])
        if WINDOW:
            seen &= tokens[None, :] > position[:, None] - WINDOW
        scores = tl.where(seen, scores, float("-inf"))
    weights, top, total, shrink = tiles.softmax_step(scores, top, total)
    v = tiles.load_rows(value_cache, rows, dims, inside, TYPE)
    return top, total, mixed * shrink[:, None] + tiles.mix_values(weights, v, True)


@triton.jit
def _paged_prefill_kernel(
    out, query, key_cache, value_cache, block_tables, seq_lens, cu_seqlens, k_scale, v_scale,
    scale, stride_query, stride_block, stride_table,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr, K_STEP: tl.constexpr, V_STEP: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M rows (query token, head of the group) of one sequence and KV head."""
    # The last rows see most, so they begin first.
    part = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head, seq = tl.program_id(1), tl.program_id(2).to(tl.int64)
    first = tl.load(cu_seqlens + seq)
    q_len = tl.load(cu_seqlens + seq + 1) - first
    if part * BLOCK_M < q_len * GROUP:
        row, dims = part * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, HEAD)
        real = (row < q_len * GROUP)[:, None]
        token = (first + row // GROUP).to(tl.int64)[:, None]
        within = (kv_head * GROUP + row % GROUP)[:, None] * HEAD + dims[None, :]
        q = tl.load(query + token * stride_query + within, mask=real, other=0.0).to(TYPE)

        # Tokens before `full` are seen by every row of the tile: no mask needed.
        before = tl.load(seq_lens + seq) - q_len
        position = before + row // GROUP
        lowest = before + part * BLOCK_M // GROUP
        end = before + tl.minimum((part * BLOCK_M + BLOCK_M - 1) // GROUP + 1, q_len)
        if WINDOW:
            begin = tl.maximum(lowest - WINDOW + 1, 0)
            full = begin
        else:
            begin = 0
            full = (lowest + 1) // BLOCK_N * BLOCK_N

        if k_scale is not None:
            scale *= tl.load(k_scale + kv_head * K_STEP)
        top = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        mixed = tl.zeros([BLOCK_M, HEAD], tl.float32)
        keys, values = key_cache + kv_head * HEAD, value_cache + kv_head * HEAD
        table = block_tables + seq * stride_table
        for start in range(begin, full, BLOCK_N):
            top, total, mixed = _attend_tile(
                start, end, position, q, keys, values, table, stride_block, scale, top, total,
                mixed, KV_HEADS * HEAD, HEAD, BLOCK_SIZE, BLOCK_N, WINDOW, TYPE, False,
            )  # fmt: skip
        for start in range(full, end, BLOCK_N):
            top, total, mixed = _attend_tile(
                start, end, position, q, keys, values, table, stride_block, scale, top, total,
                mixed, KV_HEADS * HEAD, HEAD, BLOCK_SIZE, BLOCK_N, WINDOW, TYPE, True,
            )  # fmt: skip

        if v_scale is not None:
            mixed *= tl.load(v_scale + kv_head * V_STEP)
        mixed /= tl.where(total > 0, total, 1.0)[:, None]
        at = out + token * (KV_HEADS * GROUP * HEAD) + within
        tl.store(at, mixed.to(out.dtype.element_ty), mask=real)


def paged_prefill(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_q: int,
    scale: float | None = None,
    *,
    k_scale: paged_checks.Scale = None,
    v_scale: paged_checks.Scale = None,
    sliding_window: int | None = None,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """Causal attention of each sequence's newest tokens over its pages.

    Their own keys and values must be in the pages already (kv_write comes first).

    Args:
        query: [num_tokens, num_heads, head_size], the sequences' tokens one after the other.
        key_cache, value_cache, block_tables, scale, k_scale, v_scale, sliding_window, config,
            backend, debug: as for paged_decode.
        seq_lens: [num_seqs] int32, cached tokens, the query's own included.
        cu_seqlens_q: [num_seqs + 1] int32, where each sequence's tokens begin in ``query``, and
            where the last one's end; at least one token each.
        max_seqlen_q: the most tokens a sequence has in ``query``.
        out: [num_tokens, num_heads, head_size] of query's dtype, to write into.

    Returns:
        ``out``, or a new tensor like it.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    pages = paged_checks.check_attention(
        query, "num_tokens", key_cache, value_cache, block_tables, seq_lens,
        scale, k_scale, v_scale, sliding_window,
    )  # fmt: skip
    sizes = pages.shapes
    sizes.check("cu_seqlens_q", cu_seqlens_q, str(sizes["num_seqs"] + 1), (torch.int32,))
    checks.at_least("max_seqlen_q", max_seqlen_q, 1)
    if checks.reads_values(block_tables, debug):
        paged_checks.check_tables(block_tables, seq_lens, sizes["num_blocks"], sizes["block_size"])
        paged_checks.check_query_lens(cu_seqlens_q, seq_lens, query.shape[0], max_seqlen_q)
    check_native_fp8("key_cache", key_cache, backend)
    chosen = choose_backend("paged_prefill", query.device, backend, min_capability=min(CONFIGS))
    out = checks.output(out, query.shape, query.dtype, query)
    if chosen.name == "reference":
        return out.copy_(
            paged_prefill_ref(
                query, key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q, pages.scale,
                k_scale=pages.k_scale, v_scale=pages.v_scale, sliding_window=sliding_window,
            )
        )  # fmt: skip
    kv_heads, head = sizes["num_kv_heads"], sizes["head_size"]
    group = sizes["num_heads"] // kv_heads
    rows = max_seqlen_q * group
    config = config or config_for(_table(query.dtype, rows), chosen.capability)
    if not sizes["num_seqs"]:
        return out
    _paged_prefill_kernel[(triton.cdiv(rows, config.tiles["BLOCK_M"]), kv_heads, len(seq_lens))](
        out, query, key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q,
        pages.k_scale, pages.v_scale, pages.scale * tiles.LOG2_E,
        query.stride(0), key_cache.stride(0), block_tables.stride(0),
        kv_heads, group, head, sizes["block_size"], pages.window, pages.k_step, pages.v_step,
        tiles.compute_type(query.dtype, chosen), **config.tiles,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return out


def paged_prefill_ref(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    scale: float,
    *,
    k_scale: paged_checks.Scale = None,
    v_scale: paged_checks.Scale = None,
    sliding_window: int | None = None,
) -> torch.Tensor:
    """The same in plain torch, in query's dtype (float64 too)."""
    parts = []
    starts = cu_seqlens_q.tolist()
    for seq, length in enumerate(seq_lens.tolist()):
        keys = cached_tokens(key_cache, block_tables[seq], length, k_scale, query.dtype)
        values = cached_tokens(value_cache, block_tables[seq], length, v_scale, query.dtype)
        own = query[starts[seq] : starts[seq + 1]]
        parts.append(attend_ref(own, keys, values, scale, sliding_window))
    return torch.cat(parts)


cost = attention_cost

# Chunks: enough rows to keep the tensor cores busy. Before Hopper (and on 120, which has its
# instructions) the products live in registers, and 64 tokens at a time spill.
_HMMA = Config({"BLOCK_M": 128, "BLOCK_N": 32}, warps=8, stages=3)
_WIDER = Config({"BLOCK_M": 128, "BLOCK_N": 64}, warps=8, stages=2)
CONFIGS = {80: _HMMA, 89: _HMMA, 90: _WIDER, 100: _WIDER, 120: _HMMA}
# Verifying a few drafts is bound by memory, as decoding is.
FEW_ROWS = 32
VERIFY = dict.fromkeys(CONFIGS, Config({"BLOCK_M": FEW_ROWS, "BLOCK_N": 32}, warps=4, stages=3))
# In full precision there is no tensor-core path, and larger tiles spill.
FP32 = dict.fromkeys(CONFIGS, Config({"BLOCK_M": 16, "BLOCK_N": 32}, warps=8, stages=1))


def _table(dtype: torch.dtype, rows: int) -> dict[int, Config]:
    if dtype == torch.float32:
        return FP32
    return VERIFY if rows <= FEW_ROWS else CONFIGS


def _spec(label: str, element: str, cache: str, q_len: int, **more: Any) -> Spec:
    types, constants = tiles.spec_arguments(element, cache)
    seqs = 4 if q_len > 5 else 64
    kv_bytes = 1 if cache != element else 4 if element == "fp32" else 2
    return Spec(
        f"paged_prefill {label}", _paged_prefill_kernel,
        {**types, "out": f"*{element}", "cu_seqlens": "*i32"}, constants,
        **{"configs": CONFIGS, "expect": WIDE_DOT, **more}, dtype=element,
        case=f"{seqs} sequences, {q_len} query tokens of 4096, 32/8 heads of 128",
        cost=cost([q_len] * seqs, [4096] * seqs, 32, 8, 128, kv_bytes=kv_bytes),
    )  # fmt: skip


AOT = (
    _spec("fp16", "fp16", "fp16", 2048, fast=True),
    _spec("bf16", "bf16", "bf16", 2048),
    _spec("fp32", "fp32", "fp32", 2048, configs=FP32, expect={}),
    _spec("fp8 portable", "bf16", "u8", 2048),
    _spec("fp8 native", "bf16", "fp8e4nv", 2048, refused=(80,)),
    _spec("verify fp16", "fp16", "fp16", 5, configs=VERIFY, expect=NARROW_DOT),
    _spec("verify fp8", "bf16", "u8", 5, configs=VERIFY, expect=NARROW_DOT),
)
