"""Decoder: Llama, Qwen2 and Qwen3 in one file, over a paged KV cache.

Weights keep the names of the Hugging Face checkpoints, so that loading is a dictionary look-up and
a reader can follow a tensor from the file to its use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import embedding, rms_norm, silu

from minilab.engine.attention import Attention, AttentionStep, KernelAttention
from minilab.engine.batch import StepBatch
from minilab.engine.batched_attention import BatchedAttention
from minilab.engine.config import DecoderConfig
from minilab.engine.linear import Linear
from minilab.engine.rotary import Rotary
from minilab.engine.weight_check import check_weights

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class _Layer:
    """One layer's weights; projections that read the same input are one matrix."""

    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """A model and its KV cache.

    Attributes:
        kv_cache: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]: keys, values; of
            the weights' dtype, unless one in another format is given with its own attention.
        attention: the kernels on a GPU, groups of sequences on a CPU, unless another is given.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        num_blocks: int,
        block_size: int,
        attention: Attention | None = None,
        kv_cache: torch.Tensor | None = None,
    ) -> None:
        check_weights(config, weights)
        table = weights["model.embed_tokens.weight"]
        self.config = config
        self.device, self.dtype = table.device, table.dtype
        self.rotary = Rotary(config, self.device)
        shape = (config.num_layers, 2, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        if kv_cache is None:
            kv_cache = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.kv_cache = kv_cache
        self.attention = attention or _attention_for(config, table)
        self.embedding = table
        self.norm_weight = weights["model.norm.weight"]
        self.head = Linear(table if config.tie_word_embeddings else weights["lm_head.weight"])
        self._layers = [_layer(config, weights, index) for index in range(config.num_layers)]

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> torch.Tensor:
        """Logits float32 [len(batch.sampled), vocab_size]; writes the step's KV on the way."""
        return self.logits(self.hidden(batch)[batch.sampled])

    @torch.inference_mode()
    def hidden(self, batch: StepBatch) -> torch.Tensor:
        """What the last layer puts out, [num_tokens, hidden_size], before the final norm."""
        x = embedding(batch.token_ids, self.embedding)
        tables = self.rotary.tables(batch.positions)
        attend = self.attention(batch)
        for layer, cache in zip(self._layers, self.kv_cache, strict=True):
            x = x + self._attention(self._norm(x, layer.input_norm), layer, attend, cache, tables)
            gate, up = layer.gate_up(self._norm(x, layer.mlp_norm)).chunk(2, dim=-1)
            x = x + layer.down(silu(gate) * up)
        return x

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits float32 [num_tokens, vocab_size] of rows of ``hidden``."""
        return self.head(self.normed(hidden)).float()

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Rows of ``hidden`` after the final norm: the features that drafters learn from."""
        return self._norm(hidden, self.norm_weight)

    def _attention(
        self,
        x: torch.Tensor,
        layer: _Layer,
        attend: AttentionStep,
        cache: torch.Tensor,
        tables: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        heads, kv_heads = self.config.num_heads, self.config.num_kv_heads
        qkv = layer.qkv(x).view(len(x), -1, self.config.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            query = self._norm(qkv[:, :heads], layer.q_norm)
            key = self._norm(qkv[:, heads : heads + kv_heads], layer.k_norm)
            turned = self.rotary.rotate(torch.cat((query, key), dim=1), tables)
        else:
            turned = self.rotary.rotate(qkv[:, : heads + kv_heads], tables)
        out = attend(turned[:, :heads], turned[:, heads:], qkv[:, heads + kv_heads :], cache)
        return layer.out(out.flatten(-2))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm in float32, as the checkpoints' own code computes it."""
        normed = rms_norm(x.float(), x.shape[-1:], eps=self.config.rms_norm_eps)
        return weight * normed.to(x.dtype)


def _attention_for(config: DecoderConfig, table: torch.Tensor) -> Attention:
    if table.device.type == "cpu":
        return BatchedAttention(config.num_heads // config.num_kv_heads, table.dtype)
    return KernelAttention()


def _layer(config: DecoderConfig, weights: Weights, index: int) -> _Layer:
    name = f"model.layers.{index}."
    attention, mlp = name + "self_attn.", name + "mlp."

    def joined(*names: str) -> torch.Tensor:
        return torch.cat([weights[each] for each in names])

    biased = [f"{attention}{part}_proj.bias" for part in "qkv"] if config.qkv_bias else None
    return _Layer(
        input_norm=weights[name + "input_layernorm.weight"],
        qkv=Linear(
            joined(*(f"{attention}{part}_proj.weight" for part in "qkv")),
            None if biased is None else joined(*biased),
        ),
        q_norm=weights[attention + "q_norm.weight"] if config.qk_norm else None,
        k_norm=weights[attention + "k_norm.weight"] if config.qk_norm else None,
        out=Linear(weights[attention + "o_proj.weight"]),
        mlp_norm=weights[name + "post_attention_layernorm.weight"],
        gate_up=Linear(joined(mlp + "gate_proj.weight", mlp + "up_proj.weight")),
        down=Linear(weights[mlp + "down_proj.weight"]),
    )
