"""EagleLayer: one transformer layer that guesses the target's next feature (EAGLE, Li et al. 2024).

A feature f_t is the target's hidden state at token t after its final norm: all that the target
itself knows when it chooses token t + 1. The layer reads f_t together with the token that was in
fact chosen, which the feature alone cannot tell, and guesses f_{t+1}. Guess after guess it runs
ahead on its own features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch.nn.functional import rms_norm, silu

from minilab.engine.config import DecoderConfig
from minilab.engine.rotary import Rotary

Matrix = Callable[[torch.Tensor], torch.Tensor]
MATRICES = ("join", "qkv", "out", "gate_up", "down")
NORMS = ("embedding", "feature", "attention", "mlp", "final")


def shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of the layer's tensors for a target of ``config``."""
    hidden, wide = config.hidden_size, config.intermediate_size
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "join": (hidden, 2 * hidden),
        "qkv": (heads + 2 * kv, hidden),
        "out": (hidden, heads),
        "gate_up": (2 * wide, hidden),
        "down": (hidden, wide),
        **{f"norm.{name}": (hidden,) for name in NORMS},
    }


class EagleLayer:
    """The layer without its attention's memory, which training and decoding keep differently.

    Args:
        config: of the target; the layer has its shapes.
        matrices: by name (``MATRICES``), functions from [..., in] to [..., out].
        norms: by name (``NORMS``), gains [hidden_size].
    """

    def __init__(
        self,
        config: DecoderConfig,
        matrices: Mapping[str, Matrix],
        norms: Mapping[str, torch.Tensor],
    ) -> None:
        self._config = config
        self._matrices = matrices
        self._norms = norms
        device = norms["final"].device
        self._rotary = Rotary(replace(config, interleaved=False), device)

    def join(self, embedded: torch.Tensor, feature: torch.Tensor) -> torch.Tensor:
        """The layer's input [..., hidden] from a token's embedding and the feature before it."""
        pair = (self._norm(embedded, "embedding"), self._norm(feature, "feature"))
        return self._matrices["join"](torch.cat(pair, dim=-1))

    def qkv(
        self, x: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values of ``x`` [n, hidden], each [n, its heads, head_dim]."""
        heads, kv = self._config.num_heads, self._config.num_kv_heads
        parts = self._matrices["qkv"](self._norm(x, "attention"))
        parts = parts.view(len(x), -1, self._config.head_dim)
        turned = self._rotary.rotate(parts[:, : heads + kv], self._rotary.tables(positions))
        return turned[:, :heads], turned[:, heads:], parts[:, heads + kv :]

    def feature(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The guessed feature [n, hidden]; ``attended``: what ``x`` saw, [n, heads * head_dim]."""
        x = x + self._matrices["out"](attended)
        gate, up = self._matrices["gate_up"](self._norm(x, "mlp")).chunk(2, dim=-1)
        return self._norm(x + self._matrices["down"](silu(gate) * up), "final")

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], self._norms[name], self._config.rms_norm_eps)
