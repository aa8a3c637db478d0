"""FP8 weights and activations (W8A8): e4m3 with one scale per output channel and per token.

Static: one scale for all activations that a matrix meets, found on a text; dynamic: one per token,
found as it runs. The product itself is ``kernels.quant_gemm.scaled_mm``; here the numbers are only
rounded, so that the accuracy table can run on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from minilab.kernels import e4m3


def round_weight(weight: torch.Tensor) -> torch.Tensor:
    """``weight`` [out_features, in_features] after a trip through e4m3, a scale per output."""
    codes, scale = channel_codes(weight)
    return (e4m3.decode(codes) * scale).to(weight.dtype)


def channel_codes(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 codes [out_features, in_features] uint8 and scales fp32 [out_features, 1]."""
    largest = weight.float().abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / e4m3.LARGEST, torch.ones_like(largest))
    return e4m3.encode(weight.float() / scale), scale


def rounded(weights: Mapping[str, torch.Tensor], names: Iterable[str]) -> dict[str, torch.Tensor]:
    """All weights, the named matrices in e4m3."""
    changed = {name + ".weight": round_weight(weights[name + ".weight"]) for name in names}
    return {**weights, **changed}


def dynamic(name: str, x: torch.Tensor) -> torch.Tensor:
    """An input hook: every token rounded with a scale of its own."""
    largest = x.float().abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / e4m3.LARGEST, torch.ones_like(largest))
    return (e4m3.decode(e4m3.encode(x.float() / scale)) * scale).to(x.dtype)


def static(scales: Mapping[str, float]) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """An input hook: every matrix's input rounded with the scale found for it."""

    def hook(name: str, x: torch.Tensor) -> torch.Tensor:
        scale = scales[name]
        return (e4m3.decode(e4m3.encode(x.float() / scale)) * scale).to(x.dtype)

    return hook
