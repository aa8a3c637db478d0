"""FP8 e4m3 (the "fn" kind: no infinity, largest 448) with integer arithmetic alone.

A code is sign, 4 exponent bits (bias 7), 3 mantissa bits. An fp16 number has 5 exponent bits (bias
15) and 10 mantissa bits, so a code shifted into fp16's place is the value divided by
2^(15 - 7) = 256, subnormals included: every e4m3 value is an fp16 value. Unlike the conversion
instructions, which exist from compute capability 8.9 on, this runs on every GPU and in Triton's
interpreter, bit for bit the same. Each function comes twice, for torch tensors and for Triton.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch

from minilab.kernels.device import tl, triton

LARGEST = 448.0
NAN_CODE = 0x7F


def decode(codes: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values of e4m3 ``codes`` (uint8, any shape), exact in any ``dtype`` from fp16 up; NaN for
    the codes 0x7F and 0xFF."""
    code = codes.to(torch.int32)
    magnitude = code & 0x7F
    half = ((code & 0x80) << 8 | magnitude << 7).to(torch.int16).view(torch.float16)
    value = half.to(dtype) * 256.0
    return torch.where(magnitude == NAN_CODE, float("nan"), value)


def encode(values: torch.Tensor) -> torch.Tensor:
    """Nearest e4m3 codes (uint8) of ``values`` (a float tensor, any shape).

    Rounds to nearest, ties to even; beyond 448, infinity too, saturates; NaN becomes 0x7F or 0xFF
    by its sign. Values are first taken to fp32, exact from fp16 and bf16.
    """
    exact = values.to(torch.float32).contiguous()
    sign = exact.view(torch.int32) >> 24 & 0x80
    size = exact.abs().clamp(max=LARGEST)
    bits = size.view(torch.int32)
    # Normal: add just under half of the last kept bit (all of half if that bit is odd), cut, and
    # take the difference of the exponent biases off (127 - 7 = 120).
    normal = (bits + 0x7FFFF + (bits >> 20 & 1) >> 20) - (120 << 3)
    # Subnormal: a multiple of 2^-9. In 2^14 + size the last bit is worth 2^-9, so the addition
    # itself rounds to it.
    tiny = (size + 2.0**14).view(torch.int32) - 0x46800000
    code = torch.where(size < 2.0**-6, tiny, normal)
    return (sign | torch.where(exact.isnan(), NAN_CODE, code)).to(torch.uint8)


@triton.jit
def decode_tile(codes):
    """``decode`` for a Triton tile of uint8; gives fp16, which holds every value exactly."""
    code = codes.to(tl.int32)
    magnitude = code & 0x7F
    half = ((code & 0x80) << 8 | magnitude << 7).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.where(magnitude == 0x7F, float("nan"), half * 256.0).to(tl.float16)


@triton.jit
def encode_tile(values):
    """``encode`` for a Triton tile of fp32; gives uint8."""
    sign = values.to(tl.int32, bitcast=True) >> 24 & 0x80
    size = tl.minimum(tl.abs(values), 448.0)
    bits = size.to(tl.int32, bitcast=True)
    normal = (bits + 0x7FFFF + (bits >> 20 & 1) >> 20) - 960
    tiny = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(size < 0.015625, tiny, normal)
    return (sign | tl.where(values != values, 0x7F, code)).to(tl.uint8)


def scale_of(values: torch.Tensor, per_head: bool = False) -> torch.Tensor:
    """Scale that maps the largest magnitude of ``values`` onto 448: stored = value / scale.

    Args:
        values: [tokens, heads, head_size], float.
        per_head: one scale per head instead of one for all.

    Returns:
        fp32, shape [1] or [heads]. Where all values are zero, 1.
    """
    size = values.to(torch.float32).abs()
    largest = size.amax(dim=(0, 2)) if per_head else size.amax().reshape(1)
    return torch.where(largest > 0, largest / LARGEST, torch.ones_like(largest))
