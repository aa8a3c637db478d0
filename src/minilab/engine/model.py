"""Decoder: Llama, Qwen2 and Qwen3 in one file, over a paged KV cache.

Weights keep the names of the Hugging Face checkpoints, so that loading is a dictionary look-up and
a reader can follow a tensor from the file to its use.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import embedding, linear, silu

from minilab.engine.batch import StepBatch
from minilab.engine.config import DecoderConfig
from minilab.engine.rotary import Rotary
from minilab.facts.errors import InputError
from minilab.kernels.kv_write import kv_write
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill

Weights = Mapping[str, torch.Tensor]


class Decoder:
    """A model and its KV cache.

    Attributes:
        kv_cache: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]: keys, values.
    """

    def __init__(
        self, config: DecoderConfig, weights: Weights, num_blocks: int, block_size: int
    ) -> None:
        table = weights["model.embed_tokens.weight"]
        self.config = config
        self.weights = weights
        self.device, self.dtype = table.device, table.dtype
        self.rotary = Rotary(config, self.device)
        shape = (config.num_layers, 2, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.kv_cache = torch.zeros(shape, dtype=self.dtype, device=self.device)
        _check(config, weights)

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> torch.Tensor:
        """Logits float32 [len(batch.sampled), vocab_size]; writes the step's KV on the way."""
        x = embedding(batch.token_ids, self.weights["model.embed_tokens.weight"])
        tables = self.rotary.tables(batch.positions)
        for layer in range(self.config.num_layers):
            name = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, name + "input_layernorm"), layer, batch, tables)
            x = x + self._mlp(self._norm(x, name + "post_attention_layernorm"), name + "mlp.")
        x = self._norm(x[batch.sampled], "model.norm")
        return linear(x, self._head()).float()

    def _attention(
        self,
        x: torch.Tensor,
        layer: int,
        batch: StepBatch,
        tables: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        name = f"model.layers.{layer}.self_attn."
        size = self.config.head_dim
        query, key, value = (
            self._project(x, f"{name}{part}_proj").view(len(x), -1, size) for part in "qkv"
        )
        if self.config.qk_norm:
            query, key = self._norm(query, name + "q_norm"), self._norm(key, name + "k_norm")
        query, key = self.rotary.rotate(query, tables), self.rotary.rotate(key, tables)
        keys, values = self.kv_cache[layer]
        kv_write(key, value, keys, values, batch.slot_mapping)
        out = torch.empty_like(query)
        chunks, split = len(batch.cu_seqlens) - 1, batch.num_prefill_tokens
        if chunks:
            out[:split] = paged_prefill(
                query[:split],
                keys,
                values,
                batch.block_tables[:chunks],
                batch.seq_lens[:chunks],
                batch.cu_seqlens,
                batch.max_seqlen,
            )
        if split < len(query):
            out[split:] = paged_decode(
                query[split:], keys, values, batch.block_tables[chunks:], batch.seq_lens[chunks:]
            )
        return linear(out.flatten(-2), self.weights[name + "o_proj.weight"])

    def _mlp(self, x: torch.Tensor, name: str) -> torch.Tensor:
        gate = silu(linear(x, self.weights[name + "gate_proj.weight"]))
        up = linear(x, self.weights[name + "up_proj.weight"])
        return linear(gate * up, self.weights[name + "down_proj.weight"])

    def _project(self, x: torch.Tensor, name: str) -> torch.Tensor:
        bias = self.weights[name + ".bias"] if self.config.qkv_bias else None
        return linear(x, self.weights[name + ".weight"], bias)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """RMS norm in float32, as the checkpoints' own code computes it."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return self.weights[name + ".weight"] * (wide * scale).to(x.dtype)

    def _head(self) -> torch.Tensor:
        tied = self.config.tie_word_embeddings
        return self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]


def _check(config: DecoderConfig, weights: Weights) -> None:
    """Raise InputError for a checkpoint that lacks a tensor or has one of another shape."""
    hidden, wide = config.hidden_size, config.intermediate_size
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes = {
        "self_attn.q_proj": (heads, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, heads),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    wanted: dict[str, tuple[int, ...]] = {"model.norm.weight": (hidden,)}
    wanted["model.embed_tokens.weight"] = (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        for name, shape in shapes.items():
            wanted[f"model.layers.{layer}.{name}.weight"] = shape
    for name, shape in wanted.items():
        found = weights.get(name)
        if found is None:
            raise InputError(f"checkpoint: no tensor {name}; it must have shape {list(shape)}")
        if tuple(found.shape) != shape:
            raise InputError(
                f"checkpoint: {name} has shape {list(found.shape)}, config.json says {list(shape)}"
            )
