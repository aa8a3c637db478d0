"""MLP: the gated feed-forward part of a layer, and of experts that every token shares."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import silu

from minilab.engine.linear import Linear


class MLP:
    """down(silu(gate) * up); gate and up read the same input and are one matrix."""

    def __init__(self, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> None:
        self._gate_up, self._down = Linear(torch.cat((gate, up))), Linear(down)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[num_tokens, hidden_size] to the same."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(silu(gate) * up)


def gated(
    weights: Mapping[str, torch.Tensor], at: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gate, up and down of the checkpoint's MLP whose names begin with ``at``."""
    gate, up, down = (weights[f"{at}{part}_proj.weight"] for part in ("gate", "up", "down"))
    return gate, up, down
