"""passes: one text through a Llama-like model with every number in reach.

The engine's Decoder is built to be fast; this is the same arithmetic written to be watched: what a
layer caches and what a matrix is multiplied with can be looked at and replaced. Tests hold its
logits to the Decoder's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn.functional import embedding, linear, scaled_dot_product_attention, silu

from minilab.engine.config import DecoderConfig
from minilab.engine.rotary import Rotary

Weights = Mapping[str, torch.Tensor]
KVHook = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
InputHook = Callable[[str, torch.Tensor], torch.Tensor]

PROJECTIONS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip


def matrices(config: DecoderConfig) -> list[str]:
    """Names of the matrices that get quantised: seven a layer; embedding and head stay."""
    return [f"model.layers.{n}.{part}" for n in range(config.num_layers) for part in PROJECTIONS]


class Pass:
    """A model with places to look in and to reach in.

    Attributes:
        kv_hook: (layer, keys, values) [num_tokens, num_kv_heads, head_dim], keys rotated -> what
            attention reads.
        input_hook: (matrix, input) [num_tokens, in_features] -> what the matrix is multiplied with.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        kv_hook: KVHook | None = None,
        input_hook: InputHook | None = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.kv_hook = kv_hook
        self.input_hook = input_hook
        self._rotary = Rotary(config, weights["model.embed_tokens.weight"].device)

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """float32 [num_tokens, vocab_size]: row t is the guess for token t + 1."""
        return linear(self.hidden(token_ids), self._head()).float()

    @torch.inference_mode()
    def hidden(self, token_ids: Sequence[int]) -> torch.Tensor:
        """[num_tokens, hidden_size], normalised, before the output head."""
        table = self.weights["model.embed_tokens.weight"]
        ids = torch.tensor(token_ids, device=table.device)
        tables = self._rotary.tables(torch.arange(len(ids), device=table.device))
        x = embedding(ids, table)
        for layer in range(self.config.num_layers):
            name = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, name + "input_layernorm"), layer, tables)
            x = x + self._mlp(self._norm(x, name + "post_attention_layernorm"), name + "mlp.")
        return self._norm(x, "model.norm")

    def _attention(
        self, x: torch.Tensor, layer: int, tables: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        name, c = f"model.layers.{layer}.self_attn.", self.config
        query, key, value = (
            self._times(x, f"{name}{part}_proj").view(len(x), -1, c.head_dim) for part in "qkv"
        )
        if c.qk_norm:
            query, key = self._norm(query, name + "q_norm"), self._norm(key, name + "k_norm")
        query, key = self._rotary.rotate(query, tables), self._rotary.rotate(key, tables)
        if self.kv_hook is not None:
            key, value = self.kv_hook(layer, key, value)
        group = c.num_heads // c.num_kv_heads
        key, value = (t.repeat_interleave(group, dim=1) for t in (key, value))
        q, k, v = (t.transpose(0, 1) for t in (query, key, value))
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self._times(out.transpose(0, 1).flatten(1), name + "o_proj")

    def _mlp(self, x: torch.Tensor, name: str) -> torch.Tensor:
        gate = silu(self._times(x, name + "gate_proj"))
        return self._times(gate * self._times(x, name + "up_proj"), name + "down_proj")

    def _times(self, x: torch.Tensor, name: str) -> torch.Tensor:
        if self.input_hook is not None:
            x = self.input_hook(name, x)
        bias = self.weights.get(name + ".bias") if self.config.qkv_bias else None
        return linear(x, self.weights[name + ".weight"], bias)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return self.weights[name + ".weight"] * (wide * scale).to(x.dtype)

    def _head(self) -> torch.Tensor:
        tied = self.config.tie_word_embeddings
        return self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
