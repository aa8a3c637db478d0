"""The norm between a model's parts."""

from __future__ import annotations

import torch
from torch.nn.functional import rms_norm


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm in float32, as the checkpoints' own code computes it."""
    return weight * rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)
