"""Rotary position embedding, in both layouts that checkpoints use."""

from __future__ import annotations

import math
from typing import Protocol

import torch

Tables = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of some positions."""


class RotaryConfig(Protocol):
    """What a rotation depends on; ``engine.config.DecoderConfig`` says what the words mean."""

    @property
    def head_dim(self) -> int: ...

    @property
    def rope_theta(self) -> float: ...

    @property
    def interleaved(self) -> bool: ...

    @property
    def rope_scaling(self) -> tuple[float, float, float, float] | None: ...


class Rotary:
    """Rotates queries and keys by their positions.

    Frequencies are theta^(-2i / head_dim) (Su et al., 2021); Llama 3 stretches the slow ones.
    """

    def __init__(self, config: RotaryConfig, device: torch.device) -> None:
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device)
        frequencies = config.rope_theta ** (-half / config.head_dim)
        if config.rope_scaling is not None:
            frequencies = _stretched(frequencies, config.rope_scaling)
        self._frequencies = frequencies
        self._interleaved = config.interleaved

    def tables(self, positions: torch.Tensor) -> Tables:
        """cos and sin, each [num_tokens, 1, head_dim / 2] float32, for int64 positions."""
        angles = positions.to(torch.float32)[:, None] * self._frequencies
        return angles.cos()[:, None], angles.sin()[:, None]

    def rotate(self, x: torch.Tensor, tables: Tables) -> torch.Tensor:
        """``x`` [num_tokens, heads, head_dim] rotated, in its own dtype."""
        cos, sin = tables
        if self._interleaved:
            first, second = x[..., 0::2].float(), x[..., 1::2].float()
        else:
            first, second = x.float().chunk(2, dim=-1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        if self._interleaved:
            return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
        return torch.cat(turned, dim=-1).to(x.dtype)


def _stretched(
    frequencies: torch.Tensor, scaling: tuple[float, float, float, float]
) -> torch.Tensor:
    """Llama 3.1's rule: slow waves by ``factor``, fast ones not, a ramp in between."""
    factor, low, high, length = scaling
    waves = 2 * math.pi / frequencies
    ramp = (length / waves - low) / (high - low)
    between = (1 - ramp) * frequencies / factor + ramp * frequencies
    slow = torch.where(waves > length / low, frequencies / factor, between)
    return torch.where(waves < length / high, frequencies, slow)
