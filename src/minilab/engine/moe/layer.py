"""MoELayer: a router, routed experts, and experts that every token shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn.functional import linear

from minilab.engine.mlp import MLP
from minilab.engine.moe.routing import Routing
from minilab.kernels.moe import fused_experts

OnRoute = Callable[[int, torch.Tensor], None]
"""Called with a layer's number and the ids int32 [num_tokens, top_k] that its router chose."""


class Experts(Protocol):
    """The routed experts of one layer, wherever they are."""

    def __call__(
        self, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor
    ) -> torch.Tensor:
        """Each token's weighted sum over its experts.

        Args:
            x: [num_tokens, hidden_size].
            topk_weights, topk_ids: float32 and int32 [num_tokens, top_k].

        Returns:
            [num_tokens, hidden_size] of x's dtype.
        """
        ...


class LocalExperts:
    """All experts here, run by ``kernels.moe.fused_experts``.

    Attributes:
        w1: [num_experts, 2 * intermediate_size, hidden_size], gate rows, then up rows.
        w2: [num_experts, hidden_size, intermediate_size].
    """

    def __init__(self, w1: torch.Tensor, w2: torch.Tensor) -> None:
        self.w1, self.w2 = w1, w2

    def __call__(
        self, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor
    ) -> torch.Tensor:
        """See ``Experts``."""
        return fused_experts(x, self.w1, self.w2, topk_weights, topk_ids)


class MoELayer:
    """One layer's mixture.

    Attributes:
        number: of the layer.
        bias: float32 [num_experts], what balances the choice; None without.
        experts: who runs the routed experts; replace it to run them elsewhere.
        on_route: told what the router chose, if not None.
    """

    def __init__(
        self,
        number: int,
        routing: Routing,
        gate: torch.Tensor,
        bias: torch.Tensor | None,
        experts: Experts,
        shared: MLP | None,
    ) -> None:
        """``gate``: [num_experts, hidden_size], used in float32 as the checkpoints' code does."""
        self.number, self.routing = number, routing
        self.bias = None if bias is None else bias.float()
        self.experts = experts
        self.on_route: OnRoute | None = None
        self._gate, self._shared = gate.float(), shared

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[num_tokens, hidden_size] to the same."""
        weights, ids = self.routing.choose(linear(x.float(), self._gate), self.bias)
        if self.on_route is not None:
            self.on_route(self.number, ids)
        routed = self.experts(x, weights, ids)
        return routed if self._shared is None else routed + self._shared(x)
