"""quant_gemm: matrix products with small weights. FP8 by FP8, and INT4 weights widened on the way.

FP8 (W8A8) halves the bytes of both sides and, where the hardware has it, doubles the rate; the
scales, one per token and one per output channel, factor out of the sum and are applied at the end.
INT4 weights (W4A16) quarter the bytes that a decode step waits for; they become fp16 in registers,
so the rate stays, and a large batch gains nothing. Packing is in quant_pack.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks, tiles
from minilab.kernels.device import choose_backend, native_fp8_refusal, tl, triton
from minilab.kernels.e4m3 import decode, decode_tile
from minilab.kernels.paged_checks import FP8
from minilab.kernels.quant_pack import GROUP_SIZES, check_layout, unpack_int4
from minilab.kernels.spec import ARCHS, NARROW_DOT, WIDE_DOT, Config, Spec, config_for


@triton.jit
def _fp8_tile(matrix, rows, k, inside, K):
    """Tile [rows, k], zero outside: FP8 as it is, portable codes as fp16 (exact)."""
    where, mask = matrix + rows[:, None] + k[None, :], inside[:, None] & (k < K)[None, :]
    if matrix.dtype.element_ty == tl.uint8:
        return decode_tile(tl.load(where, mask=mask, other=0))
    else:
        return tl.load(where, mask=mask, other=0.0)


@triton.jit
def _w8a8_kernel(
    out, a, b, scale_a, scale_b, M, N, K, stride_a, stride_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: a BLOCK_M x BLOCK_N tile. Eight tiles down, then the next column: their rows of
    b are read from L2."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.swizzle2d(tl.program_id(0) // across, tl.program_id(0) % across, down, across, 8)
    row, column = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    there, inside = row < M, column < N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = _fp8_tile(a, row.to(tl.int64) * stride_a, k, there, K)
        w = _fp8_tile(b, column.to(tl.int64) * stride_b, k, inside, K)
        # Hopper adds FP8 products with few bits; every BLOCK_K of them the sum moves to fp32.
        acc = tl.dot(x, tl.trans(w), acc, max_num_imprecise_acc=BLOCK_K)
    acc *= tl.load(scale_a + row, mask=there, other=0.0)[:, None]
    acc *= tl.load(scale_b + column, mask=inside, other=0.0)[None, :]
    at = out + row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])


@triton.jit
def _widen(words, AWQ: tl.constexpr):
    """Numbers 0..15 of packed ``words`` [R, C] as fp16 1024 + q, [R, 8 C]: 0x6400 is 1024 in fp16,
    whose last bits count ones."""
    words = tl.interleave(words, words)
    words = tl.interleave(words, words)
    words = tl.interleave(words, words)
    j = tl.arange(0, words.shape[1]) % 8
    nibble = j // 2 + j % 2 * 4 if AWQ else j
    q = (words >> (nibble * 4)[None, :]) & 15
    return (q | 0x6400).to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit
def _w4a16_kernel(
    out, x, qweight, scales, qzeros, M, N, K, stride_x,
    GROUP: tl.constexpr, AWQ: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: a BLOCK_M x BLOCK_N tile; BLOCK_K inputs of one group at a time."""
    row, column = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N
    word = column // 8 + tl.arange(0, BLOCK_N // 8)
    column += tl.arange(0, BLOCK_N)
    there, inside = row < M, column < N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        at = x + row.to(tl.int64)[:, None] * stride_x + k[None, :]
        a = tl.load(at, mask=there[:, None], other=0.0).to(TYPE)
        fits = (word * 8 < N)[None, :]
        group = start // GROUP
        zeros = tl.load(qzeros + group * (N // 8) + word[None, :], mask=fits, other=0)
        zero = _widen(zeros, AWQ)
        if AWQ:
            words = tl.load(qweight + k[:, None] * (N // 8) + word[None, :], mask=fits, other=0)
            w = _widen(words, AWQ) - zero
        else:
            packed = start // 8 + tl.arange(0, BLOCK_K // 8)
            at = qweight + packed[None, :] * N + column[:, None]
            words = tl.load(at, mask=inside[:, None], other=0)
            w = tl.trans(_widen(words, AWQ)) - (zero + 1.0)
        # q - zero is a small whole number, exact in any type; the scale is left for fp32.
        part = tl.dot(a, w.to(TYPE), input_precision="ieee")
        scale = tl.load(scales + group * N + column, mask=inside, other=0.0)
        acc += part * scale.to(tl.float32)[None, :]
    at = out + row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])


def scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """(a · scale_a) times (b · scale_b), FP8 by FP8 (vLLM's cutlass_scaled_mm, torch's _scaled_mm).

    Args:
        a: [m, k] FP8 e4m3 as uint8 (portable codec) or float8_e4m3fn (hardware, capability 8.9 and
            up); rows may have any stride. quant_pack.quantize_rows makes it, and scale_a.
        b: [k, n] of the same dtype, column-major: the ``.t()`` of a weight [n, k].
        scale_a: [m, 1] fp32, one per token.
        scale_b: [1, n] fp32, one per output channel.
        out_dtype: fp16, bf16 or fp32.
        config: tiles to use instead of CONFIGS, NATIVE or their tables for few rows.
        backend: "auto", "triton", "interpreter" or "reference"; capability 8.0 and up.
        out: [m, n] of out_dtype, to write into.

    Returns:
        ``out``, or a new tensor like it.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("a", a, "n k", FP8, dense_from=1)
    return out
