"""Values that are hard to round to e4m3."""

from __future__ import annotations

import torch


def hard_values() -> torch.Tensor:
    """fp32: each code's value and the ties between neighbours, each also one step of fp32 to
    either side; subnormals, the ends, infinities, NaN; and 100,000 at random over all sizes."""
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    ties = (codes[1:] + codes[:-1]) / 2
    ends = torch.tensor([464.0, 465.0, 479.9, 480.0, 1e3, 3e38, float("inf"), 1e-45, 1e-38, 0.0])
    exact = torch.cat([codes, ties, ends.double()]).float()
    around = [exact, exact.nextafter(torch.tensor(0.0)), exact.nextafter(torch.tensor(1e30))]
    generator = torch.Generator().manual_seed(0)
    size = torch.rand(100_000, generator=generator) * 24 - 13
    special = torch.cat([*around, 2.0**size])
    nan = torch.tensor([float("nan")])
    return torch.cat([special, -special, nan, -nan])
