"""mla_decode: one query token per sequence attends over pages of latents (DeepSeek's MLA).

A token is cached as one latent of 512 numbers and 64 rotated ones, shared by all heads. With the
up-projections absorbed into the query and the output, attention runs on the latent itself: it is
key (all 576 numbers) and value (the first 512) at once, read once, used twice. So 128 heads share
one read, and decoding is no longer bound by memory alone.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks, paged_checks, tiles
from minilab.kernels.device import Backend, check_native_fp8, choose_backend, sm_count, tl, triton
from minilab.kernels.mla_ref import cost, mla_decode_ref
from minilab.kernels.spec import ARCHS, NARROW_DOT, WIDE_DOT, Config, Spec, config_for

WIDTHS = (16, 32, 64, 128, 256, 512)


@triton.jit
def _mla_split_kernel(
    partial, lse, query, kv_cache, block_tables, seq_lens, kv_scale,
    scale, stride_query, stride_block, stride_table, num_splits, HEADS: tl.constexpr,
    LATENT: tl.constexpr, ROPE: tl.constexpr, BLOCK_SIZE: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, USE_DOT: tl.constexpr,
):  # fmt: skip
    """One program: one sequence, BLOCK_H heads, one share of the tokens."""
    # Programs of the same tokens side by side: the first brings them to L2, the others find them.
    chunk, seq, split = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    heads = chunk * BLOCK_H + tl.arange(0, BLOCK_H)
    real = (heads < HEADS)[:, None]
    dims, turned = tl.arange(0, LATENT), LATENT + tl.arange(0, ROPE)
    rows = query + seq * stride_query + heads[:, None] * (LATENT + ROPE)
    q = tl.load(rows + dims[None, :], mask=real, other=0.0).to(TYPE)
    q_rope = tl.load(rows + turned[None, :], mask=real, other=0.0).to(TYPE)

    length = tl.load(seq_lens + seq)
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), num_splits) * BLOCK_N
    first = split * share
    last = tl.minimum(first + share, length)

    if kv_scale is not None:
        scale *= tl.load(kv_scale)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    mixed = tl.zeros([BLOCK_H, LATENT], tl.float32)
    table = block_tables + seq * stride_table
    for start in range(first, last, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        inside = tokens < last
        at = tiles.page_rows(table, tokens, inside, stride_block, LATENT + ROPE, BLOCK_SIZE)
        rope = tiles.load_rows(kv_cache, at, turned, inside, TYPE)
        latent = tiles.load_rows(kv_cache, at, dims, inside, TYPE)
        scores = tiles.scores_of(q_rope, rope, USE_DOT) + tiles.scores_of(q, latent, USE_DOT)
        scores = tl.where(inside[None, :], scores * scale, float("-inf"))
        weights, top, total, shrink = tiles.softmax_step(scores, top, total)
        mixed = mixed * shrink[:, None] + tiles.mix_values(weights, latent, USE_DOT)

    if kv_scale is not None:
        mixed *= tl.load(kv_scale)
    at = (seq * HEADS + heads) * num_splits + split
    total = tl.where(total > 0, total, 1.0)
    tl.store(partial + at[:, None] * LATENT + dims[None, :], mixed / total[:, None], mask=real)
    tl.store(lse + at, top + tl.log2(total), mask=heads < HEADS)


def mla_decode(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *,
    kv_lora_rank: int = 512,
    kv_scale: paged_checks.Scale = None,
    num_splits: int | None = None,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """softmax(q·K · scale) · V, where V is the latent and K the latent and its rotated part.

    Args:
        query: [num_seqs, num_heads, kv_lora_rank + rope], fp16, bf16 or fp32: the absorbed query
            (q_nope times the key's up-projection), then the rotated one; rows of any stride.
        kv_cache: [num_blocks, block_size, kv_lora_rank + rope] (vLLM's), blocks dense; query's
            dtype, or FP8 e4m3 as uint8 (portable codec) or float8_e4m3fn (capability 8.9 and up).
        block_tables, seq_lens, num_splits, backend, debug: as for paged_decode.
        scale: factor of q·k: 1/sqrt of the head size *before* absorption (192 in DeepSeek-V3).
        kv_lora_rank: numbers of a latent; this and the rest are one of WIDTHS each.
        kv_scale: what stored FP8 is multiplied by: a number, or fp32 [1].
        config: tiles to use instead of those of TABLES.
        out: [num_seqs, num_heads, kv_lora_rank] of query's dtype, to write into.

    Returns:
        ``out`` or a new tensor: for the value's up-projection to be applied to.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("query", query, "num_seqs num_heads width", checks.FLOATS, dense_from=1)
    stored = (query.dtype, *paged_checks.FP8)
    shapes.check("kv_cache", kv_cache, "num_blocks block_size width", stored, dense_from=1)
    shapes.check("block_tables", block_tables, "num_seqs max_blocks", (torch.int32,), dense_from=1)
    shapes.check("seq_lens", seq_lens, "num_seqs", (torch.int32,))
    rope = shapes["width"] - kv_lora_rank
    if kv_lora_rank not in WIDTHS or rope not in WIDTHS:
        raise ValueError(
            f"kv_lora_rank is {kv_lora_rank}, which leaves {rope} of {shapes['width']} numbers for"
            f" the rotated part; both must be one of {', '.join(str(w) for w in WIDTHS)}"
        )
    shapes.sizes["num_kv_heads"] = 1
    kv_scale, _ = paged_checks.head_scale("kv_scale", kv_scale, kv_cache, shapes)
    block_size = shapes["block_size"]
    if checks.reads_values(block_tables, debug):
        paged_checks.check_tables(block_tables, seq_lens, shapes["num_blocks"], block_size)
    check_native_fp8("kv_cache", kv_cache, backend)
    chosen = choose_backend("mla_decode", query.device, backend)
    num_seqs, heads = shapes["num_seqs"], shapes["num_heads"]
    out = checks.output(out, (num_seqs, heads, kv_lora_rank), query.dtype, query)
    if chosen.name == "reference":
        arrays = (query, kv_cache, block_tables, seq_lens, scale)
        return out.copy_(mla_decode_ref(*arrays, kv_lora_rank=kv_lora_rank, kv_scale=kv_scale))
    config = config or _config_of(query, kv_cache, chosen)
    chunks = triton.cdiv(heads, config.tiles["BLOCK_H"])
    if num_splits is None:
        room = sm_count(query.device) * (2 if config.tiles["BLOCK_H"] <= FEW_HEADS else 1)
        num_splits = _splits_for(num_seqs * chunks, room, block_tables.shape[1] * block_size)
    if not 1 <= num_splits <= tiles.MAX_SPLITS:
        raise ValueError(f"num_splits is {num_splits}; it must be within 1 and {tiles.MAX_SPLITS}")
    if not num_seqs:
        return out
    partial = query.new_empty((num_seqs, heads, num_splits, kv_lora_rank), dtype=torch.float32)
    lse = query.new_empty((num_seqs, heads, num_splits), dtype=torch.float32)
    _mla_split_kernel[(chunks, num_seqs, num_splits)](
        partial, lse, query, kv_cache, block_tables, seq_lens, kv_scale, scale * tiles.LOG2_E,
        query.stride(0), kv_cache.stride(0), block_tables.stride(0), num_splits, heads,
        kv_lora_rank, rope, block_size, tiles.compute_type(query.dtype, chosen), **config.tiles,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    parts = (out, partial, lse, num_splits, kv_lora_rank, triton.next_power_of_2(num_splits))
    tiles.combine_kernel[(num_seqs * heads,)](*parts, num_warps=COMBINE[75].warps)
    return out


def _config_of(query: torch.Tensor, cache: torch.Tensor, chosen: Backend) -> Config:
    """fp32 in full precision has no tensor-core path: on a GPU it goes without dot."""
    plain = query.dtype == torch.float32 and chosen.name == "triton"
    table = TABLES[query.shape[1] > FEW_HEADS, cache.dtype in paged_checks.FP8]
    return config_for(table, 75 if plain else chosen.capability)


def _splits_for(programs: int, room: int, tokens: int) -> int:
    """Splits so that all programs find ``room`` at once. No more: each leaves a partial result of
    512 numbers a head, which for 128 heads soon outweighs the cache. None has under 256 tokens."""
    return max(1, min(room // max(programs, 1), tokens // 256, tiles.MAX_SPLITS))


# Without tensor cores (75: Triton emits none for it) two heads and sixteen tokens at a time.
_PLAIN = Config({"BLOCK_H": 2, "BLOCK_N": 16, "USE_DOT": False}, warps=8, stages=1)


def _dot(heads: int, tokens: int, stages: int = 3) -> Config:
    # Three: the block table is read a step before the page that it names, and that before its use.
    return Config({"BLOCK_H": heads, "BLOCK_N": tokens, "USE_DOT": True}, warps=8, stages=stages)


CONFIGS = {75: _PLAIN, **dict.fromkeys(ARCHS[1:], _dot(16, 32))}
_FP8 = {75: _PLAIN, **dict.fromkeys(ARCHS[1:], _dot(16, 64))}
# From 64 rows on, Hopper and Blackwell multiply from shared memory; elsewhere 64 rows spill.
FEW_HEADS = 16
COMBINE = dict.fromkeys(ARCHS, Config({"SPLITS": tiles.MAX_SPLITS}, warps=8))
_MANY = {75: _PLAIN, **dict.fromkeys(ARCHS[1:], _dot(32, 32)), 90: _dot(64, 64), 100: _dot(64, 32)}
_MANY_FP8 = {75: _PLAIN, **dict.fromkeys(ARCHS[1:], _dot(32, 32)), 90: _dot(64, 32, stages=2)}
TABLES = {  # (more than FEW_HEADS, FP8)
    (False, False): CONFIGS, (False, True): _FP8, (True, False): _MANY, (True, True): _MANY_FP8,
}  # fmt: skip


def _spec(label: str, element: str, cache: str, heads: int, shape: Any = None, **more: Any) -> Spec:
    scaled = cache != element
    types = {"partial": "*fp32", "lse": "*fp32", "query": f"*{element}", "kv_cache": f"*{cache}"}
    types |= {"block_tables": "*i32", "seq_lens": "*i32", "scale": "fp32"}
    types |= {"kv_scale": "*fp32"} if scaled else {}
    types |= dict.fromkeys(("stride_query", "stride_block", "stride_table", "num_splits"), "i32")
    constants: dict[str, Any] = {"HEADS": heads, "LATENT": 512, "ROPE": 64, "BLOCK_SIZE": 64}
    constants |= {"TYPE": tiles.triton_type(element), **({} if scaled else {"kv_scale": None})}
    constants |= shape or {}
    kv_bytes = 1 if scaled else 4 if element == "fp32" else 2
    return Spec(
        f"mla_decode {label}", _mla_split_kernel, types, constants,
        **{"configs": TABLES[heads > FEW_HEADS, scaled], "expect": NARROW_DOT, **more},
        any_value=("num_splits",), dtype=element,
        case=f"64 sequences of 4096 tokens, {heads} heads",
        cost=None if shape else cost([4096] * 64, heads, kv_bytes=kv_bytes),
    )  # fmt: skip


AOT = (
    _spec("16 heads fp16", "fp16", "fp16", 16, fast=True),
    _spec("16 heads bf16", "bf16", "bf16", 16),
    _spec("16 heads fp32", "fp32", "fp32", 16, configs=dict.fromkeys(CONFIGS, _PLAIN), expect={}),
    _spec("16 heads fp8 portable", "bf16", "u8", 16),
    _spec("16 heads fp8 native", "bf16", "fp8e4nv", 16, refused=(75, 80)),
    _spec("small fp16", "fp16", "fp16", 16, {"LATENT": 128, "ROPE": 32}),
    _spec("128 heads bf16", "bf16", "bf16", 128, expect=WIDE_DOT),
    _spec("128 heads fp8 portable", "bf16", "u8", 128, expect={**NARROW_DOT, 90: "HGMMA"}),
    Spec(
        "mla_decode combine", tiles.combine_kernel,
        {"out": "*fp16", "partial": "*fp32", "lse": "*fp32", "num_splits": "i32"},
        {"HEAD": 512}, COMBINE, any_value=("num_splits",),
    ),
)  # fmt: skip
