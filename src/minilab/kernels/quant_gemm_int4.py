"""quant_gemm_int4: activations times 4-bit weights that are widened on the way (W4A16).

A decode step waits for weights, and these are a quarter of the bytes. In registers they become 16
bits wide and go through the ordinary tensor cores, so the rate stays what it was: a large batch
gains nothing. Weights are read as AWQ and GPTQ files hold them (quant_pack packs and unpacks).
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks, tiles
from minilab.kernels.device import Backend, choose_backend, tl, triton
from minilab.kernels.quant_pack import GROUP_SIZES, check_layout, unpack_int4
from minilab.kernels.spec import ARCHS, NARROW_DOT, WIDE_DOT, Config, Spec, config_for


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


def w4a16_gemm(
    x: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    qzeros: torch.Tensor,
    *,
    layout: str = "awq",
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x times the transpose of a packed weight (vLLM's awq_gemm, in its order of arguments).

    Args:
        x: [num_tokens, in_features], fp16, bf16 or fp32; rows may have any stride.
        qweight: int32, eight weights each: awq [in_features, out_features / 8],
            gptq [in_features / 8, out_features] (without act-order).
        scales: [groups, out_features] of x's dtype; 32, 64 or 128 inputs a group.
        qzeros: [groups, out_features / 8] int32; gptq stores zero points less one.
        layout: "awq" or "gptq".
        config: tiles to use instead of those of CONFIGS, FEW or FP32.
        backend: "auto", "triton", "interpreter" or "reference"; Triton from capability 8.0 on.
        out: [num_tokens, out_features] of x's dtype, to write into.

    Returns:
        ``out``, or a new tensor like it.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    check_layout(layout)
    shapes = checks.Shapes()
    shapes.check("x", x, "num_tokens in_features", checks.FLOATS, dense_from=1)
    shapes.check("scales", scales, "groups out_features", (x.dtype,))
    (rows, inputs), outputs, groups = x.shape, shapes["out_features"], shapes["groups"]
    if outputs % 8:
        raise ValueError(f"scales has {outputs} outputs; it must have a multiple of 8")
    if inputs % groups or inputs // groups not in GROUP_SIZES:
        raise ValueError(
            f"scales has {groups} groups for {inputs} inputs; it must have one for every 32, 64"
            " or 128"
        )
    packed = (inputs, outputs // 8) if layout == "awq" else (inputs // 8, outputs)
    shapes.check("qweight", qweight, " ".join(str(size) for size in packed), (torch.int32,))
    shapes.check("qzeros", qzeros, f"groups {outputs // 8}", (torch.int32,))
    chosen = choose_backend("w4a16_gemm", x.device, backend, min_capability=min(CONFIGS))
    out = checks.output(out, (rows, outputs), x.dtype, x)
    if chosen.name == "reference":
        return out.copy_(w4a16_gemm_ref(x, qweight, scales, qzeros, layout=layout))
    group = inputs // groups
    config = config or _config_of(x, chosen)
    block = {**config.tiles, "BLOCK_K": min(config.tiles["BLOCK_K"], group)}
    if rows:
        grid = (triton.cdiv(rows, block["BLOCK_M"]), triton.cdiv(outputs, block["BLOCK_N"]))
        _w4a16_kernel[grid](
            out, x, qweight, scales, qzeros, rows, outputs, inputs, x.stride(0),
            group, layout == "awq", tiles.compute_type(x.dtype, chosen), **block,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def _config_of(x: torch.Tensor, chosen: Backend) -> Config:
    """By rows. fp32 in full precision has no tensor-core path, and larger tiles spill."""
    if x.dtype == torch.float32 and chosen.name == "triton":
        return config_for(FP32, chosen.capability)
    return config_for(FEW if len(x) <= FEW_ROWS else CONFIGS, chosen.capability)


def w4a16_gemm_ref(
    x: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    qzeros: torch.Tensor,
    *,
    layout: str = "awq",
) -> torch.Tensor:
    """The same in plain torch, in x's dtype (float64 too)."""
    return x @ unpack_int4(qweight, scales, qzeros, layout).to(x.dtype).T


def cost(m: int, n: int, k: int, *, group_size: int = 128) -> tuple[int, int]:
    """(bytes, FLOPs): half a byte per weight, a scale of 2 bytes and a zero point of half a byte
    per group and output, x read and the product written in 2 bytes; a multiply-add each."""
    weights = n * k // 2 + n * (k // group_size) * 5 // 2
    return weights + 2 * m * k + 2 * m * n, 2 * m * n * k


def _tiles(m: int, n: int, k: int, warps: int, stages: int) -> Config:
    return Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, warps, stages)


CONFIGS = dict.fromkeys(ARCHS[1:], _tiles(128, 64, 64, warps=8, stages=3))
# While decoding there is a handful of rows; many small loads must be under way at once.
FEW_ROWS = 16
FEW = dict.fromkeys(ARCHS[1:], _tiles(16, 64, 128, warps=4, stages=6))
FP32 = dict.fromkeys(ARCHS[1:], _tiles(16, 32, 32, warps=4, stages=2))


def _spec(label: str, element: str, awq: bool, few: bool, **more: Any) -> Spec:
    types = dict.fromkeys(("out", "x", "scales"), f"*{element}")
    types |= dict.fromkeys(("qweight", "qzeros"), "*i32")
    types |= dict.fromkeys(("M", "N", "K", "stride_x"), "i32")
    constants = {"GROUP": 128, "AWQ": awq, "TYPE": tiles.triton_type(element)}
    m = 16 if few else 8192
    return Spec(
        f"quant_gemm_int4 {label}", _w4a16_kernel, types, constants,
        **{"configs": FEW, "expect": NARROW_DOT, **more}, any_value=("M",),
        case=f"{m} x 8192 x 8192, groups of 128", dtype=element, cost=cost(m, 8192, 8192),
    )  # fmt: skip


AOT = (
    _spec("awq few rows", "fp16", True, True, fast=True),
    _spec("gptq few rows", "fp16", False, True),
    _spec("awq", "bf16", True, False, configs=CONFIGS, expect=WIDE_DOT),
    _spec("gptq", "bf16", False, False, configs=CONFIGS, expect=WIDE_DOT),
    _spec("awq fp32", "fp32", True, True, configs=FP32, expect={}),
)
