"""One layer of a DeepSeek: latent attention, then an MLP or a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from minilab.engine.deepseek.attention import LatentStep, UpProjection
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.linear import Linear
from minilab.engine.mlp import MLP, gated
from minilab.engine.moe.layer import LocalExperts, MoELayer
from minilab.engine.norm import norm
from minilab.engine.paged_model import Weights
from minilab.engine.rotary import Rotary, Tables


@dataclass(frozen=True)
class _Attention:
    """``down``: what reads the layer's input in one product, the query's part first."""

    down: Linear
    q_norm: torch.Tensor | None
    q_up: Linear | None
    kv_norm: torch.Tensor
    up: UpProjection
    out: Linear


class DeepseekLayer:
    """One layer.

    Attributes:
        mlp: an ``MLP``, or the ``MoELayer``.
        reduce: put on what attention and MLP add; sums the parts of several processes.
    """

    def __init__(self, config: DeepseekConfig, weights: Weights, number: int) -> None:
        name = f"model.layers.{number}."
        self.mlp = _mlp(config, weights, number)
        self.reduce: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.contiguous
        self._config = config
        self._input_norm = weights[name + "input_layernorm.weight"]
        self._mlp_norm = weights[name + "post_attention_layernorm.weight"]
        self._attention = _attention(config, weights, name + "self_attn.")

    def __call__(
        self,
        x: torch.Tensor,
        attend: LatentStep,
        cache: torch.Tensor,
        rotary: Rotary,
        tables: Tables,
    ) -> torch.Tensor:
        """See ``Layer``; the latents of the tokens go into ``cache``."""
        eps = self._config.rms_norm_eps
        query, latent = self.project(norm(x, self._input_norm, eps), rotary, tables)
        mixed = attend(query, latent, self._attention.up, cache)
        x = x + self.reduce(self._attention.out(mixed.flatten(-2)))
        return x + self.reduce(self.mlp(norm(x, self._mlp_norm, eps)))

    def project(
        self, x: torch.Tensor, rotary: Rotary, tables: Tables
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Query [T, num_heads, nope + rope] and cache row [T, kv_lora_rank + rope] of normed x."""
        own, config = self._attention, self._config
        nope, rank, eps = config.qk_nope_head_dim, config.kv_lora_rank, config.rms_norm_eps
        both = own.down(x)
        first = both.shape[1] - config.cache_width
        query, latent, key = both.tensor_split((first, first + rank), dim=-1)
        if own.q_up is not None and own.q_norm is not None:
            query = own.q_up(norm(query, own.q_norm, eps))
        query = query.reshape(len(x), config.num_heads, -1)
        query = torch.cat((query[..., :nope], rotary.rotate(query[..., nope:], tables)), dim=-1)
        key = rotary.rotate(key[:, None], tables)[:, 0]
        return query, torch.cat((norm(latent, own.kv_norm, eps), key), dim=-1)


def _attention(config: DeepseekConfig, weights: Weights, at: str) -> _Attention:
    split = config.q_lora_rank is not None
    first = weights[at + ("q_a_proj.weight" if split else "q_proj.weight")]
    return _Attention(
        down=Linear(torch.cat((first, weights[at + "kv_a_proj_with_mqa.weight"]))),
        q_norm=weights[at + "q_a_layernorm.weight"] if split else None,
        q_up=Linear(weights[at + "q_b_proj.weight"]) if split else None,
        kv_norm=weights[at + "kv_a_layernorm.weight"],
        up=UpProjection.of(
            weights[at + "kv_b_proj.weight"], config.num_heads, config.qk_nope_head_dim
        ),
        out=Linear(weights[at + "o_proj.weight"]),
    )


def _mlp(config: DeepseekConfig, weights: Weights, number: int) -> MLP | MoELayer:
    name, routing = f"model.layers.{number}.mlp.", config.routing
    if routing is None or not config.has_experts(number):
        return MLP(*gated(weights, name))
    parts = [gated(weights, f"{name}experts.{e}.") for e in range(routing.num_experts)]
    experts = LocalExperts(
        torch.stack([torch.cat((gate, up)) for gate, up, _ in parts]),
        torch.stack([down for _, _, down in parts]),
    )
    return MoELayer(
        number,
        routing,
        weights[name + "gate.weight"],
        weights[name + "gate.e_score_correction_bias"] if routing.biased else None,
        experts,
        MLP(*gated(weights, name + "shared_experts.")) if config.num_shared_experts else None,
    )
