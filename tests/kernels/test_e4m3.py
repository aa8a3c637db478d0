"""The e4m3 codec against torch's own type, and against a search among all codes in float64."""

from __future__ import annotations

import pytest
import torch
from e4m3_values import hard_values

from minilab.kernels import e4m3

NATIVE = torch.float8_e4m3fn
CODES = torch.arange(256, dtype=torch.uint8)


def nearest(values: torch.Tensor) -> torch.Tensor:
    """The nearest code by looking at all of them; of two equally near, the even one."""
    sizes = CODES[:127].view(NATIVE).double()
    size = values.double().abs().clamp(max=448.0)
    above = torch.searchsorted(sizes, size.nan_to_num(0.0)).clamp(max=126)
    below = (above - 1).clamp(min=0)
    up, down = sizes[above] - size, size - sizes[below]
    code = torch.where(up < down, above, below)
    code = torch.where((up == down) & (below % 2 == 1), above, code)
    code = torch.where(values.isnan(), 0x7F, code)
    return (code + 128 * values.signbit()).to(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_decode_all_codes(dtype):
    """Exact in every type, signed zeros and subnormals too; the two NaN codes are NaN."""
    got, wanted = e4m3.decode(CODES, dtype), CODES.view(NATIVE).to(dtype)
    assert got.isnan().nonzero().flatten().tolist() == [0x7F, 0xFF]
    real = ~got.isnan()
    assert torch.equal(got[real], wanted[real])
    assert torch.equal(got[real].signbit(), wanted[real].signbit())


def test_encode_hard_values():
    """Ties, subnormals, saturation, infinity, NaN, and 100,000 at random."""
    values = hard_values()
    assert len(values) > 200_000
    assert torch.equal(e4m3.encode(values), nearest(values))


def test_encode_agrees_with_torch_in_range():
    """Up to 464, where torch's versions differ: some saturate, some give NaN."""
    values = hard_values()
    values = values[values.abs() <= 448.0]
    assert torch.equal(e4m3.encode(values), values.to(NATIVE).view(torch.uint8))


def test_round_trip():
    """Every code that is a number comes back."""
    real = CODES[(CODES & 0x7F) != 0x7F]
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(e4m3.encode(e4m3.decode(real, dtype)), real)


def test_encode_takes_any_layout():
    """A transposed tensor has no contiguous bits to look at."""
    values = hard_values()[:200_000].reshape(400, 500)
    assert torch.equal(e4m3.encode(values.T), e4m3.encode(values).T)


def test_scale_maps_the_largest_onto_448():
    """Per tensor and per head; a head of zeros is not divided by zero."""
    values = torch.randn(10, 3, 16, generator=torch.Generator().manual_seed(0))
    values[:, 1] = 0.0
    per_head, one = e4m3.scale_of(values, per_head=True), e4m3.scale_of(values)
    assert one.shape == (1,) and per_head.shape == (3,)
    assert per_head[1] == 1.0 and one == per_head.amax().minimum(one)
    scaled = values / per_head[:, None]
    assert torch.allclose(scaled.abs().amax((0, 2)), torch.tensor([448.0, 0.0, 448.0]))


def test_on_the_interpreter(run_cases):
    """The Triton halves."""
    run_cases("cases_e4m3.py", "interpreter")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The Triton halves, compiled."""
    run_cases("cases_e4m3.py", "gpu")
