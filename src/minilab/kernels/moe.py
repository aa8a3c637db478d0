"""moe: the experts of a mixture, each on its own tokens (grouped matrix product, fused SiLU).

Tokens are few per expert and experts are many, so a loop over experts would launch hundreds of
small products. Instead moe_align sorts the (token, expert) pairs into tiles that belong to one
expert, and one launch does all tiles: gate and up projection with silu(gate) · up on the way out,
then the down projection, then each token's weighted sum over its experts.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks, tiles
from minilab.kernels.device import Backend, choose_backend, tl, triton
from minilab.kernels.moe_align import moe_align_block_size
from minilab.kernels.spec import ARCHS, NARROW_DOT, WIDE_DOT, Config, Spec, config_for


@triton.jit
def _multiply(acc, a, weight, k, inside, K, TYPE: tl.constexpr):
    """acc + a · weightᵀ for a tile [columns, k] of a weight; ``weight`` points at its rows."""
    mask = inside[:, None] & (k < K)[None, :]
    b = tl.load(weight[:, None] + k[None, :], mask=mask, other=0.0).to(TYPE)
    return tl.dot(a, tl.trans(b), acc, input_precision="ieee")


@triton.jit
def _grouped_gemm_kernel(
    y, x, w, sorted_ids, expert_ids, post_padded, num_pairs, N, K, stride_x,
    TOP_K: tl.constexpr, GATED: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M pairs of one expert, BLOCK_N columns of their result.

    Row of x for a pair: pair // TOP_K. GATED: w holds N gate rows, then N up rows, per expert.
    """
    # Tiles of one expert and the same columns follow each other: its weights come from L2.
    block, part = tl.program_id(0), tl.program_id(1)
    if block * BLOCK_M < tl.load(post_padded):
        expert = tl.load(expert_ids + block).to(tl.int64)
        pair = tl.load(sorted_ids + block * BLOCK_M + tl.arange(0, BLOCK_M))
        real, pair = pair < num_pairs, pair.to(tl.int64)
        column = part * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = column < N
        rows = x + pair // TOP_K * stride_x
        gate = w + expert * N * K * (2 if GATED else 1) + column.to(tl.int64) * K
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            mask = real[:, None] & (k < K)[None, :]
            a = tl.load(rows[:, None] + k[None, :], mask=mask, other=0.0).to(TYPE)
            acc = _multiply(acc, a, gate, k, inside, K, TYPE)
            if GATED:
                up = _multiply(up, a, gate + N * K, k, inside, K, TYPE)
        if GATED:
            acc = acc / (1.0 + tl.exp(-acc)) * up
        at = y + pair[:, None] * N + column[None, :]
        tl.store(at, acc.to(y.dtype.element_ty), mask=real[:, None] & inside[None, :])


@triton.jit
def _unpermute_kernel(
    out, y, topk_weights, topk_ids, hidden, TOP_K: tl.constexpr, BLOCK_H: tl.constexpr
):
    """One program: one token's BLOCK_H columns, summed over its experts, the first one first."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    total = tl.zeros([BLOCK_H], tl.float32)
    for k in range(TOP_K):
        pair = token * TOP_K + k
        here = tl.load(topk_ids + pair) >= 0
        weight = tl.load(topk_weights + pair, mask=here, other=0.0)
        row = tl.load(y + pair * hidden + column, mask=here & (column < hidden), other=0.0)
        total += weight * row.to(tl.float32)
    tl.store(out + token * hidden + column, total.to(out.dtype.element_ty), mask=column < hidden)


def fused_experts(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    *,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """Sum over a token's experts of weight · w2[e] (silu(gate) · up), gate and up from w1[e].

    Args:
        hidden_states: [num_tokens, hidden_size], fp16, bf16 or fp32; rows may have any stride.
        w1: [num_experts, 2 * intermediate_size, hidden_size] of the same dtype: the gate's rows,
            then up's (vLLM's w13). Sizes that are multiples of 16 load in wide pieces.
        w2: [num_experts, hidden_size, intermediate_size] of the same dtype.
        topk_weights: [num_tokens, top_k] fp32, as moe_router gives them.
        topk_ids: [num_tokens, top_k] int32; -1 is an expert that is not here: adds nothing.
        config: tiles to use instead of CONFIGS or FEW.
        backend: "auto", "triton", "interpreter" or "reference".
        out: [num_tokens, hidden_size] of the same dtype, to write into.
        debug: also read topk_ids on a GPU to check them (waits for it).

    Returns:
        ``out``, or a new tensor like it.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("hidden_states", hidden_states, "num_tokens hidden_size", checks.FLOATS, 1)
    dtype = (hidden_states.dtype,)
    shapes.check("w1", w1, "num_experts 2*intermediate_size hidden_size", dtype)
    shapes.check("w2", w2, "num_experts hidden_size intermediate_size", dtype)
    shapes.check("topk_weights", topk_weights, "num_tokens top_k", (torch.float32,))
    shapes.check("topk_ids", topk_ids, "num_tokens top_k", (torch.int32,))
    (num_tokens, hidden), top_k = hidden_states.shape, shapes["top_k"]
    experts, inner = shapes["num_experts"], shapes["intermediate_size"]
    if w1.shape[1] != 2 * inner:
        raise ValueError(
            f"w1 has {w1.shape[1]} rows per expert; it must have 2 * intermediate_size = "
            f"{2 * inner}, gate and up"
        )
    if checks.reads_values(topk_ids, debug):
        checks.check_range("topk_ids", topk_ids, -1, experts - 1, "num_experts - 1")
    chosen = choose_backend("fused_experts", hidden_states.device, backend)
    out = checks.output(out, (num_tokens, hidden), hidden_states.dtype, hidden_states)
    if chosen.name == "reference":
        return out.copy_(fused_experts_ref(hidden_states, w1, w2, topk_weights, topk_ids))
    if not num_tokens:
        return out
    pairs = num_tokens * top_k
    config = config or _config_of(hidden_states.dtype, pairs / experts, chosen)
    order = moe_align_block_size(topk_ids, config.tiles["BLOCK_M"], experts, backend=chosen.name)
    middle, y = out.new_empty((pairs, inner)), out.new_empty((pairs, hidden))
    options = {**config.tiles, "num_warps": config.warps, "num_stages": config.stages}
    kind, blocks = tiles.compute_type(out.dtype, chosen), len(order.expert_ids)
    columns = config.tiles["BLOCK_N"]
    _grouped_gemm_kernel[(blocks, triton.cdiv(inner, columns))](
        middle, hidden_states, w1, *order, pairs, inner, hidden, hidden_states.stride(0),
        top_k, True, kind, **options,
    )  # fmt: skip
    _grouped_gemm_kernel[(blocks, triton.cdiv(hidden, columns))](
        y, middle, w2, *order, pairs, hidden, inner, inner, 1, False, kind, **options
    )
    _unpermute_kernel[(num_tokens, triton.cdiv(hidden, 1024))](
        out, y, topk_weights, topk_ids, hidden, top_k, 1024
    )
    return out


def _config_of(dtype: torch.dtype, rows: float, chosen: Backend) -> Config:
    """By rows per expert. fp32 in full precision has no tensor-core path: the tiles of a T4."""
    plain = dtype == torch.float32 and chosen.name == "triton"
    table = FEW if rows <= FEW_ROWS else CONFIGS
    return config_for(table, 75 if plain else chosen.capability)


def fused_experts_ref(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
) -> torch.Tensor:
    """The same in plain torch, expert by expert, in hidden_states' dtype (float64 too)."""
    dtype = hidden_states.dtype
    out = torch.zeros_like(hidden_states, memory_format=torch.contiguous_format)
    for expert in topk_ids.unique().tolist():
        if expert < 0:
            continue
        token, k = (topk_ids == expert).nonzero(as_tuple=True)
        gate, up = (hidden_states[token] @ w1[expert].to(dtype).T).chunk(2, dim=1)
        down = (torch.nn.functional.silu(gate) * up) @ w2[expert].to(dtype).T
        out.index_add_(0, token, down * topk_weights[token, k, None].to(dtype))
    return out


def cost(
    num_tokens: int,
    num_experts: int,
    top_k: int,
    hidden_size: int,
    intermediate_size: int,
    *,
    weight_bytes: int = 2,
    active_experts: float | None = None,
) -> tuple[int, int]:
    """(bytes, FLOPs): three matrices of each expert that any token asked, tokens read and written.

    ``active_experts``: how many these are; None for what even, independent routing gives on
    average, E · (1 - (1 - top_k/E)^tokens).
    """
    if active_experts is None:
        active_experts = num_experts * (1 - (1 - top_k / num_experts) ** num_tokens)
    weights = 3 * active_experts * hidden_size * intermediate_size * weight_bytes
    moved = weights + num_tokens * (2 * hidden_size * weight_bytes + 8 * top_k)
    return round(moved), 6 * num_tokens * top_k * hidden_size * intermediate_size


# Without tensor cores (75: Triton emits none for it) larger tiles spill.
_PLAIN = Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, warps=4, stages=1)
_HMMA = Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, warps=4, stages=3)
_WIDER = Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, warps=4, stages=4)
CONFIGS = {75: _PLAIN, 80: _HMMA, 89: _HMMA, 90: _WIDER, 100: _WIDER, 120: _HMMA}
# While decoding, an expert has a handful of rows, and its weights are read for them alone.
FEW_ROWS = 16
_NARROW = Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128}, warps=4, stages=3)
FEW = {75: _PLAIN, **dict.fromkeys(ARCHS[1:], _NARROW)}


def _spec(label: str, element: str, gated: bool, tokens: int, **more: Any) -> Spec:
    types = dict.fromkeys(("y", "x", "w"), f"*{element}")
    types |= dict.fromkeys(("sorted_ids", "expert_ids", "post_padded"), "*i32")
    types |= dict.fromkeys(("num_pairs", "N", "K", "stride_x"), "i32")
    constants = {"TOP_K": 8 if gated else 1, "GATED": gated, "TYPE": tiles.triton_type(element)}
    if gated:
        case = f"{tokens} tokens, top 8 of 128 experts, 2048 x 768"
        size = 4 if element == "fp32" else 2
        more |= {"case": case, "cost": cost(tokens, 128, 8, 2048, 768, weight_bytes=size)}
    return Spec(
        f"moe {label}", _grouped_gemm_kernel, types, constants, dtype=element,
        **{"configs": CONFIGS, "expect": WIDE_DOT, **more},
    )  # fmt: skip


AOT = (
    _spec("gate-up fp16", "fp16", True, 4096, fast=True),
    _spec("gate-up bf16", "bf16", True, 4096),
    _spec("gate-up fp32", "fp32", True, 64, configs=dict.fromkeys(CONFIGS, _PLAIN), expect={}),
    _spec("gate-up few rows", "bf16", True, 64, configs=FEW, expect=NARROW_DOT),
    _spec("down bf16", "bf16", False, 4096),
    _spec("down few rows", "bf16", False, 64, configs=FEW, expect=NARROW_DOT),
    Spec(
        "moe un-permute", _unpermute_kernel,
        {"out": "*bf16", "y": "*bf16", "topk_weights": "*fp32", "topk_ids": "*i32",
         "hidden": "i32"},
        {"TOP_K": 8, "BLOCK_H": 1024}, dict.fromkeys(CONFIGS, Config({})),
    ),
)  # fmt: skip
