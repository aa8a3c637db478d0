"""Llama, Qwen2 and Qwen3 over a paged KV cache: the layer, and the model made of layers."""

from __future__ import annotations

import torch

from minilab.engine.attention import Attention, AttentionStep, KernelAttention
from minilab.engine.batched_attention import BatchedAttention
from minilab.engine.config import DecoderConfig
from minilab.engine.linear import Linear
from minilab.engine.mlp import MLP, gated
from minilab.engine.norm import norm
from minilab.engine.paged_model import PagedModel, Weights
from minilab.engine.rotary import Rotary, Tables


class DecoderLayer:
    """Attention of query heads in groups, then an MLP; projections of one input are one matrix."""

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


class Decoder(PagedModel):
    """A model and its KV cache.

    Attributes:
        kv_cache: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]: keys, values; of
            the weights' dtype, unless one in another format is given with its own attention.
        attention: the kernels on a GPU, groups of sequences on a CPU, unless another is given.
    """

    config: DecoderConfig

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        num_blocks: int,
        block_size: int,
        attention: Attention | None = None,
        kv_cache: torch.Tensor | None = None,
    ) -> None:
        super().__init__(config, weights)
        if kv_cache is None:
            heads = (config.num_kv_heads, config.head_dim)
            kv_cache = self.new_cache(config.num_layers, 2, num_blocks, block_size, *heads)
        self.kv_cache = kv_cache
        self.attention = attention or self._usual_attention()
        self.layers = [DecoderLayer(config, weights, n) for n in range(config.num_layers)]

    def _usual_attention(self) -> Attention:
        if self.device.type == "cpu":
            return BatchedAttention(self.config.num_heads // self.config.num_kv_heads, self.dtype)
        return KernelAttention()
