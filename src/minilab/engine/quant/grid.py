"""Grid: a matrix as whole numbers of few bits, with a scale and a zero point per group of inputs.

    w = (q - zero) * scale,  q in 0 .. 2^bits - 1,  one (scale, zero) per group and output

A group that does not divide the inputs leaves a shorter last group (SmolLM2's 576 inputs are four
groups of 128 and one of 64); the public file layouts cannot hold that, ``checkpoint`` refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.facts.errors import InputError

EXACT = 1e-6
"""Largest relative misfit at which a matrix counts as lying on a grid already."""


@dataclass(frozen=True)
class Grid:
    """A quantised matrix [out_features, in_features].

    Attributes:
        q: int32 [out_features, in_features].
        scales: fp32 [out_features, groups].
        zeros: fp32 whole numbers [out_features, groups].
    """

    q: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    group_size: int
    bits: int = 4

    def weight(self) -> torch.Tensor:
        """The matrix that it stands for, fp32."""
        scales, zeros = (
            spread(x, self.group_size, self.q.shape[1]) for x in (self.scales, self.zeros)
        )
        return (self.q - zeros) * scales


def spread(per_group: torch.Tensor, group_size: int, inputs: int) -> torch.Tensor:
    """[out_features, groups] as [out_features, inputs]."""
    return per_group.repeat_interleave(group_size, dim=1)[:, :inputs]


def find_grid(
    block: torch.Tensor, bits: int = 4, symmetric: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point [out_features, 1] of one group [out_features, inputs].

    From the least to the largest number, zero among them; symmetric: zero in the middle. Scales are
    rounded to fp16, as files store them.
    """
    most = 2**bits - 1
    low = block.amin(1, keepdim=True).clamp(max=0)
    high = block.amax(1, keepdim=True).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / most).half().float()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    zero = torch.full_like(scale, 2 ** (bits - 1)) if symmetric else (-low / scale).round()
    return scale, zero.clamp(0, most)


def round_to(
    block: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, bits: int = 4
) -> torch.Tensor:
    """Nearest whole numbers of the grid, as floats."""
    return ((block / scale).round() + zero).clamp(0, 2**bits - 1)


def round_to_nearest(
    weight: torch.Tensor, group_size: int = 128, bits: int = 4, symmetric: bool = False
) -> Grid:
    """RTN: every number to its nearest neighbour, nothing more. Raises InputError."""
    if group_size < 1 or bits not in range(2, 9):
        raise InputError(f"group_size {group_size}, bits {bits}; give 1 or more, and 2 to 8 bits")
    q, scales, zeros = [], [], []
    for block in torch.split(weight.float(), group_size, dim=1):
        scale, zero = find_grid(block, bits, symmetric)
        q.append(round_to(block, scale, zero, bits))
        scales.append(scale)
        zeros.append(zero)
    whole = torch.cat(q, dim=1).int()
    return Grid(whole, torch.cat(scales, dim=1), torch.cat(zeros, dim=1), group_size, bits)


def already_on_grid(weight: torch.Tensor, group_size: int = 32, bits: int = 4) -> bool:
    """Whether every group holds at most 2^bits evenly spaced values, as dequantised files do.

    Such a matrix survives rounding to that grid (almost) unchanged, so a test on it proves nothing
    about the rounding. True for weights read from a Q4 GGUF file with its own group of 32.
    """
    groups = weight.float().unfold(1, group_size, group_size).flatten(0, 1)
    ordered = groups.sort(dim=1).values
    steps = ordered.diff(dim=1)
    width = (ordered[:, -1:] - ordered[:, :1]).clamp(min=1e-30)
    distinct = (steps > EXACT * width).sum(1) + 1
    smallest = torch.where(steps > EXACT * width, steps, width).amin(1, keepdim=True)
    misfit = (steps / smallest - (steps / smallest).round()).abs().amax(1)
    return bool(((distinct <= 2**bits) & (misfit < 0.02)).all())
