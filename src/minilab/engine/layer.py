"""One layer of a Llama, Qwen2 or Qwen3: attention of query heads in groups, then an MLP."""

from __future__ import annotations

import torch

from minilab.engine.attention import AttentionStep
from minilab.engine.config import DecoderConfig
from minilab.engine.linear import Linear
from minilab.engine.mlp import MLP, gated
from minilab.engine.norm import norm
from minilab.engine.paged_model import Weights
from minilab.engine.rotary import Rotary, Tables


class DecoderLayer:
    """One layer; projections that read the same input are one matrix."""

    def __init__(self, config: DecoderConfig, weights: Weights, number: int) -> None:
        name = f"model.layers.{number}."
        attention = name + "self_attn."

        def joined(kind: str) -> torch.Tensor:
            return torch.cat([weights[f"{attention}{part}_proj.{kind}"] for part in "qkv"])

        self._config = config
        self._input_norm = weights[name + "input_layernorm.weight"]
        self._qkv = Linear(joined("weight"), joined("bias") if config.qkv_bias else None)
        self._q_norm = weights[attention + "q_norm.weight"] if config.qk_norm else None
        self._k_norm = weights[attention + "k_norm.weight"] if config.qk_norm else None
        self._out = Linear(weights[attention + "o_proj.weight"])
        self._mlp_norm = weights[name + "post_attention_layernorm.weight"]
        self._mlp = MLP(*gated(weights, name + "mlp."))

    def __call__(
        self,
        x: torch.Tensor,
        attend: AttentionStep,
        cache: torch.Tensor,
        rotary: Rotary,
        tables: Tables,
    ) -> torch.Tensor:
        """See ``Layer``; keys and values of the tokens go into ``cache``."""
        x = x + self._attention(self._norm(x, self._input_norm), attend, cache, rotary, tables)
        return x + self._mlp(self._norm(x, self._mlp_norm))

    def _attention(
        self,
        x: torch.Tensor,
        attend: AttentionStep,
        cache: torch.Tensor,
        rotary: Rotary,
        tables: Tables,
    ) -> torch.Tensor:
        heads, kv_heads = self._config.num_heads, self._config.num_kv_heads
        qkv = self._qkv(x).view(len(x), -1, self._config.head_dim)
        if self._q_norm is not None and self._k_norm is not None:
            query = self._norm(qkv[:, :heads], self._q_norm)
            key = self._norm(qkv[:, heads : heads + kv_heads], self._k_norm)
            turned = rotary.rotate(torch.cat((query, key), dim=1), tables)
        else:
            turned = rotary.rotate(qkv[:, : heads + kv_heads], tables)
        out = attend(turned[:, :heads], turned[:, heads:], qkv[:, heads + kv_heads :], cache)
        return self._out(out.flatten(-2))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return norm(x, weight, self._config.rms_norm_eps)
