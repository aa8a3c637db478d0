"""quant_gemm: FP8 activations times FP8 weights (W8A8), one scale per token and per channel.

FP8 halves the bytes of both sides and, where the hardware multiplies it, doubles the rate. A scale
that is constant along the sum factors out of it, so the product runs on the bare codes, and the two
scales, of the token and of the output channel, are applied once at the end.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks
from minilab.kernels.device import check_native_fp8, choose_backend, tl, triton
from minilab.kernels.e4m3 import decode, decode_tile
from minilab.kernels.paged_checks import FP8
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
    at = tl.program_id(0)
    tile_m, tile_n = tl.swizzle2d(at // across, at % across, down, across, 8)
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
    place = out + row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(place, acc.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])


def scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """(scale_a · a) times (b · scale_b) (vLLM's cutlass_scaled_mm, torch's _scaled_mm).

    Args:
        a: [m, k] FP8 e4m3 as uint8 (portable codec) or float8_e4m3fn (hardware, capability 8.9 and
            up); rows may have any stride. quant_pack.quantize_rows gives it and its scale.
        b: [k, n] of the same dtype, column-major: the ``.t()`` of a weight [n, k].
        scale_a: [m, 1] fp32, one per token.
        scale_b: [1, n] fp32, one per output channel.
        out_dtype: torch.float16, bfloat16 or float32.
        config: tiles to use instead of those of ``TABLES``.
        backend: "auto", "triton", "interpreter" or "reference"; Triton from capability 8.0 on.
        out: [m, n] of out_dtype, to write into.

    Returns:
        ``out``, or a new tensor like it.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("a", a, "num_tokens k", FP8, dense_from=1)
    shapes.check("b", b, "k n", (a.dtype,), dense_from=2)
    shapes.check("scale_a", scale_a, "num_tokens 1", (torch.float32,))
    shapes.check("scale_b", scale_b, "1 n", (torch.float32,), dense_from=1)
    if b.stride(0) != 1:
        raise ValueError(
            f"b has strides {b.stride()}; it must be column-major: pass weight.t() of a [n, k] one"
        )
    if out_dtype not in checks.FLOATS:
        raise ValueError(f"out_dtype is {out_dtype}; it must be float16, bfloat16 or float32")
    check_native_fp8("a", a, backend)
    chosen = choose_backend("scaled_mm", a.device, backend, min_capability=min(CONFIGS))
    rows, columns = shapes["num_tokens"], shapes["n"]
    out = checks.output(out, (rows, columns), out_dtype, a)
    if chosen.name == "reference":
        return out.copy_(scaled_mm_ref(a, b, scale_a, scale_b, torch.float32))
    table = TABLES[a.dtype == torch.float8_e4m3fn, rows <= FEW_ROWS]
    config = config or config_for(table, chosen.capability)
    down, across = (
        triton.cdiv(size, config.tiles[tile])
        for size, tile in ((rows, "BLOCK_M"), (columns, "BLOCK_N"))
    )
    if rows:
        _w8a8_kernel[(down * across,)](
            out, a, b, scale_a, scale_b, rows, columns, shapes["k"], a.stride(0), b.stride(1),
            **config.tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def scaled_mm_ref(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """The same in plain torch, computed in out_dtype (float64 too) from the codes' values."""
    x, w = (decode(codes.view(torch.uint8), out_dtype) for codes in (a, b.t()))
    return (x @ w.T) * scale_a.to(out_dtype) * scale_b.to(out_dtype)


def cost(m: int, n: int, k: int, *, out_bytes: int = 2) -> tuple[int, int]:
    """(bytes, FLOPs): codes of both sides and scales read once, the product written once; a
    multiply-add for each pair of codes."""
    return m * k + n * k + out_bytes * m * n + 4 * (m + n), 2 * m * n * k


def _tiles(m: int, n: int, k: int, warps: int, stages: int) -> Config:
    return Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, warps, stages)


# While decoding there is a handful of rows, and the weights are read for them alone.
FEW_ROWS = 16
CONFIGS = dict.fromkeys(ARCHS[1:], _tiles(128, 128, 64, warps=8, stages=3))
_FEW = dict.fromkeys(ARCHS[1:], _tiles(16, 64, 64, warps=4, stages=5))
_NATIVE = dict.fromkeys(ARCHS[1:], _tiles(128, 128, 128, warps=8, stages=3))
_NATIVE_FEW = dict.fromkeys(ARCHS[1:], _tiles(16, 64, 256, warps=4, stages=3))
TABLES = {  # (hardware FP8, few rows)
    (False, False): CONFIGS, (False, True): _FEW, (True, False): _NATIVE, (True, True): _NATIVE_FEW,
}  # fmt: skip
# The hardware's product of FP8. For 16 rows, Hopper and its successor widen the codes to fp16.
_WIDE_FP8 = {89: "QMMA", 90: "QGMMA", 100: "UTCQMMA", 120: "QMMA"}
_NARROW_FP8 = {89: "QMMA", 90: "HMMA", 100: "HMMA", 120: "QMMA"}


def _spec(label: str, codes: str, few: bool, expect: dict[int, str], **more: Any) -> Spec:
    types = {"out": "*bf16", "a": f"*{codes}", "b": f"*{codes}"}
    types |= dict.fromkeys(("scale_a", "scale_b"), "*fp32")
    types |= dict.fromkeys(("M", "N", "K", "stride_a", "stride_b"), "i32")
    native, m = codes != "u8", 16 if few else 8192
    return Spec(
        f"quant_gemm {label}", _w8a8_kernel, types, {}, TABLES[native, few], expect,
        any_value=("M",), case=f"{m} x 8192 x 8192", dtype="fp8" if native else "fp16",
        cost=cost(m, 8192, 8192), refused=(80,) if native else (), **more,
    )  # fmt: skip


AOT = (
    _spec("portable", "u8", False, WIDE_DOT, fast=True),
    _spec("portable few rows", "u8", True, NARROW_DOT),
    _spec("native", "fp8e4nv", False, _WIDE_FP8),
    _spec("native few rows", "fp8e4nv", True, _NARROW_FP8),
)
