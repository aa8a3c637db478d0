"""Device functions that the attention kernels share: pages, dot or no dot, online softmax.

Scores are kept in units of log2, because exp2 is what the hardware has: a score is
q·k · scale · log2(e). A row that has seen nothing yet has maximum -inf and sum 0.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels.device import Backend, tl, triton
from minilab.kernels.e4m3 import decode_tile

LOG2_E = 1.4426950408889634
MAX_SPLITS = 64  # programs that may share one sequence


def triton_type(name: str) -> Any:
    """Triton's type object for "fp16", "bf16" or "fp32"."""
    return {"fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32}[name]


def compute_type(dtype: torch.dtype, backend: Backend) -> Any:
    """Triton type in which tiles are multiplied. The interpreter's bf16 arithmetic is wrong."""
    if dtype == torch.bfloat16 and backend.name != "interpreter":
        return triton_type("bf16")
    return triton_type("fp16" if dtype == torch.float16 else "fp32")


def spec_arguments(element: str, cache: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Types and constants common to the attention kernels' specs.

    32 query heads over 8 KV heads of 128, pages of 16 tokens; no window.
    """
    scaled = cache != element
    types = {"query": f"*{element}", "block_tables": "*i32", "seq_lens": "*i32", "scale": "fp32"}
    types |= {"key_cache": f"*{cache}", "value_cache": f"*{cache}"}
    types |= dict.fromkeys(("k_scale", "v_scale"), "*fp32") if scaled else {}
    types |= dict.fromkeys(("stride_query", "stride_block", "stride_table"), "i32")
    constants = {"KV_HEADS": 8, "GROUP": 4, "HEAD": 128, "BLOCK_SIZE": 16, "WINDOW": 0}
    constants |= {"K_STEP": 1, "V_STEP": 1, "TYPE": triton_type(element)}
    return types, constants | ({} if scaled else {"k_scale": None, "v_scale": None})


@triton.jit
def page_rows(table, tokens, inside, stride_block, stride_token, BLOCK_SIZE: tl.constexpr):
    """Offset of each token's row in a cache: its page from the block table, its slot in the page.
    In 64 bits: a cache has more elements than 32 bits count."""
    block = tl.load(table + tokens // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
    return block * stride_block + (tokens % BLOCK_SIZE) * stride_token


@triton.jit
def load_rows(cache, rows, dims, inside, TYPE: tl.constexpr):
    """Tile [tokens, dims] of a cache as TYPE, zero outside; uint8 holds portable FP8 codes."""
    where = cache + rows[:, None] + dims[None, :]
    if cache.dtype.element_ty == tl.uint8:
        return decode_tile(tl.load(where, mask=inside[:, None], other=0)).to(TYPE)
    else:
        return tl.load(where, mask=inside[:, None], other=0.0).to(TYPE)


@triton.jit
def scores_of(q, k, USE_DOT: tl.constexpr):
    """q [M, D] times k [N, D], summed over D: [M, N] in fp32. The tensor cores want 16 rows or
    more; without them, products and a sum over a small tile need fewer registers."""
    if USE_DOT:
        return tl.dot(q, tl.trans(k), input_precision="ieee")
    else:
        return tl.sum(q.to(tl.float32)[:, None, :] * k.to(tl.float32)[None, :, :], 2)


@triton.jit
def mix_values(p, v, USE_DOT: tl.constexpr):
    """p [M, N] times v [N, D], summed over N: [M, D] in fp32."""
    if USE_DOT:
        return tl.dot(p.to(v.dtype), v, input_precision="ieee")
    else:
        return tl.sum(p[:, :, None] * v.to(tl.float32)[None, :, :], 1)


@triton.jit
def softmax_step(scores, top, total):
    """Fold a tile of ``scores`` [M, N] into the running maximum and sum of each row.

    Returns the weights of the tile, the new maximum and sum, and the factor by which what was
    accumulated so far shrinks.
    """
    new_top = tl.maximum(top, tl.max(scores, 1))
    # All masked so far: -inf - -inf would be NaN.
    finite = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2(scores - finite[:, None])
    shrink = tl.exp2(top - finite)
    return weights, new_top, total * shrink + tl.sum(weights, 1), shrink


@triton.jit
def combine_kernel(out, partial, lse, num_splits, HEAD: tl.constexpr, SPLITS: tl.constexpr):
    """One program: one head of one sequence. Weights the shares by what they summed up."""
    row = tl.program_id(0).to(tl.int64)
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, HEAD)
    there = splits < num_splits
    at = row * num_splits + splits
    sums = tl.load(lse + at, mask=there, other=float("-inf"))
    top = tl.max(sums, 0)
    weights = tl.exp2(sums - tl.where(top == float("-inf"), 0.0, top))
    parts = tl.load(partial + at[:, None] * HEAD + dims[None, :], mask=there[:, None], other=0.0)
    total = tl.sum(weights, 0)
    mixed = tl.sum(weights[:, None] * parts, 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + row * HEAD + dims, mixed.to(out.dtype.element_ty))
