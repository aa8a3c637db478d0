"""The model in the form that training wants: dense attention, one batch of equal windows.

The engine has its own forward pass over pages of latents; a test holds the two to each other.
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, embedding, linear

from tiny_deepseek.attention import attention, rotations
from tiny_deepseek.config import EXPERTS, LAYERS, MOE_LAYERS, MTP
from tiny_deepseek.experts import Experts, route, swiglu
from tiny_deepseek.norm import norm
from tiny_deepseek.parameters import Params


class Model:
    """The forward pass; keeps each MoE layer's bias and the load of the last step.

    Attributes:
        bias: float32 [EXPERTS] by layer, moved by ``balance`` and not by the optimiser.
        load: int64 [EXPERTS] by layer: pairs that the last forward pass sent to each expert.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self.bias = {layer: torch.zeros(EXPERTS) for layer in MOE_LAYERS}
        self.load = {layer: torch.zeros(EXPERTS, dtype=torch.int64) for layer in MOE_LAYERS}
        self._masks: dict[int, torch.Tensor] = {}

    def losses(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropies of the next token and, by the MTP module, of the one after it.

        ``windows``: int64 [batch, length + 2].
        """
        hidden, ahead = self.features(windows[:, :-1])
        head = self.params["lm_head.weight"]
        first = cross_entropy(linear(hidden, head).flatten(0, 1), windows[:, 1:-1].flatten())
        second = cross_entropy(linear(ahead, head).flatten(0, 1), windows[:, 2:].flatten())
        return first, second

    def features(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Normed features of tokens[:, :-1]: of the model, and of its MTP module, which sees the
        following token as well. ``tokens``: int64 [batch, length + 1]."""
        params = self.params
        vectors = embedding(tokens, params["model.embed_tokens.weight"])
        x = vectors[:, :-1]
        turns = rotations(x.shape[1])
        for layer in range(LAYERS):
            x = self._layer(x, layer, turns)
        hidden = norm(x, params["model.norm.weight"])
        at = f"model.layers.{MTP}."
        both = torch.cat(
            (
                norm(vectors[:, 1:], params[at + "enorm.weight"]),
                norm(hidden, params[at + "hnorm.weight"]),
            ),
            dim=-1,
        )
        # Its positions are one higher, all of them: a rotation does not see that.
        ahead = self._layer(linear(both, params[at + "eh_proj.weight"]), MTP, turns)
        return hidden, norm(ahead, params[at + "shared_head.norm.weight"])

    def balance(self, step: float) -> None:
        """Loss-free balancing: the bias of a busy expert falls by ``step``, others' rises."""
        for layer, load in self.load.items():
            self.bias[layer] += step * torch.sign(load.float().mean() - load)

    def _layer(self, x: torch.Tensor, layer: int, turns: torch.Tensor) -> torch.Tensor:
        at, params = f"model.layers.{layer}.", self.params
        normed = norm(x, params[at + "input_layernorm.weight"])
        x = x + attention(normed, params, at + "self_attn.", turns, self._mask(x.shape[1]))
        normed = norm(x, params[at + "post_attention_layernorm.weight"])
        if layer in MOE_LAYERS:
            return x + self._moe(normed.flatten(0, 1), layer).view_as(x)
        return x + swiglu(normed, params, at + "mlp.")

    def _moe(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        at, params = f"model.layers.{layer}.mlp.", self.params
        scores = linear(x.float(), params[at + "gate.weight"]).sigmoid()
        ids, weights = route(scores, self.bias[layer])
        self.load[layer] = ids.flatten().bincount(minlength=EXPERTS)
        stacks = params[at + "experts.gate_up"], params[at + "experts.down"]
        routed: torch.Tensor = Experts.apply(x, *stacks, ids, weights)
        return routed + swiglu(x, params, at + "shared_experts.")

    def _mask(self, length: int) -> torch.Tensor:
        if length not in self._masks:
            self._masks[length] = torch.full((length, length), -torch.inf).triu(1)
        return self._masks[length]
