"""The codec's Triton halves equal its torch halves, bit for bit, on the interpreter or a GPU."""

from __future__ import annotations

import torch
from e4m3_values import hard_values
from on_device import DEVICE

from minilab.kernels import e4m3
from minilab.kernels.device import tl, triton


@triton.jit
def _decode(codes, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, e4m3.decode_tile(tl.load(codes + at)))


@triton.jit
def _encode(values, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(values + at, mask=at < count, other=0.0)
    tl.store(out + at, e4m3.encode_tile(tile), mask=at < count)


def test_decode_all_codes():
    """256 of them, NaN included."""
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    out = torch.full((256,), float("nan"), dtype=torch.float16, device=DEVICE)
    _decode[(1,)](codes, out, 256)
    wanted = e4m3.decode(codes, torch.float16)
    assert torch.equal(out.isnan(), wanted.isnan())
    real = ~wanted.isnan()
    assert torch.equal(out[real].view(torch.int16), wanted[real].view(torch.int16))


def test_encode_hard_values():
    """Ties, subnormals, saturation, infinity, NaN, and 100,000 at random."""
    values = hard_values().to(DEVICE)
    out = torch.zeros(len(values), dtype=torch.uint8, device=DEVICE)
    _encode[(triton.cdiv(len(values), 8192),)](values, out, len(values), 8192)
    assert torch.equal(out, e4m3.encode(values))
