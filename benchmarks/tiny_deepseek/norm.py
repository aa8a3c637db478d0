"""RMS norm, forward and back, in fewer passes over the rows than torch's own takes."""

from __future__ import annotations

from typing import Any

import torch

from tiny_deepseek.config import C


class RMSNorm(torch.autograd.Function):
    """torch's own is a dozen passes over the rows on a CPU; this is six."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = (size * size / x.shape[-1] + C["rms_norm_eps"]).rsqrt_()
        normed = x * factor
        ctx.save_for_backward(normed, factor, weight)
        return normed * weight

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        normed, factor, weight = ctx.saved_tensors
        along = grad * normed
        share = (along @ weight)[..., None] / normed.shape[-1]
        d_x = torch.addcmul(grad * weight, normed, share, value=-1).mul_(factor)
        return d_x, along.flatten(0, -2).sum(0)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMS norm over the last dimension."""
    normed: torch.Tensor = RMSNorm.apply(x, weight)
    return normed
