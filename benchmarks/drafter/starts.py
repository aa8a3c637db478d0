"""Parameters before the first step: each drafter begins by handing its input through."""

from __future__ import annotations

from typing import Any

import torch

from minilab.engine.spec.eagle_layer import shapes
from minilab.engine.spec.medusa import medusa_shapes


def eagle_start(config: Any, norm: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Small random matrices, and the identity on the feature: it begins by repeating its input."""
    dice = torch.Generator().manual_seed(seed)
    std = {"join": 0.02, "qkv": 0.03, "gate_up": 0.03, "out": 0.01, "down": 0.01}
    found = {
        name: torch.randn(shape, generator=dice) * std[name] if name in std else torch.ones(shape)
        for name, shape in shapes(config).items()
    }
    hidden = config.hidden_size
    found["join"][:, hidden:] += torch.eye(hidden)
    found["norm.final"] = norm.clone()
    return found


def medusa_start(config: Any, norm: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Heads that begin by handing the feature through."""
    dice = torch.Generator().manual_seed(seed)
    found = {
        name: torch.randn(shape, generator=dice) * (0.01 if name.endswith("out") else 0.03)
        for name, shape in medusa_shapes(config).items()
    }
    for name in found:
        if name.endswith("norm"):
            found[name] = norm.clone()
        elif name.endswith("bias"):
            found[name] = torch.zeros_like(found[name])
    return found
