"""ModelSpec: a model's geometry and what follows from it by arithmetic.

Parameters, FLOPs per token and KV bytes per token are sums over layers, so a handful of integers
from a Hugging Face config.json is enough; no weights are read. Vision and audio towers, draft
(MTP) layers and speed are not here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.geometry import Geometry
from minilab.facts.kv_layout import KVGroup, dtype_bytes
from minilab.facts.model_config import read_config
from minilab.facts.user_input import read_json


@dataclass(frozen=True)
class ModelSpec(Geometry):
    """A model's geometry (the fields of Geometry) and the sizes and counts that follow from it."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], name: str = "model") -> ModelSpec:
        """The geometry in a Hugging Face config.json (a dict). Raises InputError."""
        return cls(name=name, **read_config(config, name))

    @classmethod
    def from_file(cls, path: str | Path, name: str | None = None) -> ModelSpec:
        """The geometry in a config.json file. Raises InputError."""
        config = read_json(path)
        if not isinstance(config, dict):
            raise InputError(f"{path}: expected a JSON object, a model's config.json")
        where = str(path)
        return cls(**{"name": name or Path(path).stem, **read_config(config, where)})

    # KV cache ---------------------------------------------------------------------------------

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """The layers that keep a KV cache, grouped by what they keep."""
        full = KVGroup(self.full_layers, self.kv_heads, self.head_dim, self.kv_lora, self.rope_dim)
        groups = [full._replace(layers=n, stride=s) for s, n in self.strides] or [full]
        if self.window_layers:
            heads = self.window_kv_heads or self.kv_heads
            dim = self.window_head_dim or self.head_dim
            shape = full._replace(layers=self.window_layers, kv_heads=heads, head_dim=dim)
            groups.append(shape._replace(window=self.window))
        return tuple(group for group in groups if group.layers)

    def _per_token(self, dtype: str, tp: int, windowed: bool | None) -> int:
        chosen = [g for g in self.kv_groups if windowed is None or bool(g.window) == windowed]
        per_stride = sum((g.layers * g.entry_bytes(dtype, tp) / g.stride for g in chosen), 0.0)
        return math.ceil(per_stride)

    def kv_bytes_per_token(self, dtype: str = "bf16", tp: int = 1) -> int:
        """Bytes of KV per token and GPU while all layers still keep it (FACTS 2.1).

        ``2 * L * max(1, ceil(kv_heads / tp)) * head_dim * bytes``; MLA ``L * (latent + rope) *
        bytes``, the same on every GPU. A sparse-attention indexer's own cache is not counted.
        """
        return self._per_token(dtype, tp, None)

    @property
    def index_bytes_per_token(self) -> int:
        """A sparse-attention indexer's own cache: fp8 keys and an fp32 scale per 128, per layer.

        The same on every GPU and for every KV dtype (132 bytes a layer for 128 dimensions).
        """
        return self.index_layers * (self.index_dim + 4 * math.ceil(self.index_dim / 128))

    def as_mha(self, head_dim: int) -> ModelSpec:
        """An MLA model as engines without MLA run it: full K and V heads, padded to ``head_dim``.

        For KV sizes only. Other models come back as they are.
        """
        if not self.kv_lora:
            return self
        return replace(self, kv_heads=self.heads, head_dim=head_dim, kv_lora=0, rope_dim=0)

    def full_kv_bytes_per_token(self, dtype: str = "bf16", tp: int = 1) -> int:
        """The part of ``kv_bytes_per_token`` that grows without bound (full layers)."""
        return self._per_token(dtype, tp, False)

    def window_kv_bytes_per_token(self, dtype: str = "bf16", tp: int = 1) -> int:
        """The part that stops growing after ``window`` tokens (sliding-window layers)."""
        return self._per_token(dtype, tp, True)

    def kv_bytes(self, tokens: int, dtype: str = "bf16", tp: int = 1) -> int:
        """Bytes per GPU that a sequence of ``tokens`` holds: full * T + window * min(T, W).

        Linear-attention layers add their constant ``state_bytes``.
        """
        return sum(g.bytes_for(tokens, dtype, tp) for g in self.kv_groups) + self.state_bytes(tp)

    def state_bytes(self, tp: int = 1) -> int:
        """Bytes per sequence and GPU of the linear layers' state: fp32 state, bf16 conv tail."""
        keys = self.linear_k_heads * self.linear_head_dim
        values = self.linear_v_heads * self.linear_head_dim
        state = 4 * values * self.linear_head_dim
        tail = 2 * max(0, self.linear_kernel - 1) * (2 * keys + values)
        return math.ceil(self.linear_layers * (state + tail) / tp)

    # Parameters -------------------------------------------------------------------------------

    @property
    def embedding_params(self) -> int:
        """Tables that are looked up, not multiplied: tokens (unless tied) and positions."""
        return self.hidden * (self.positions + (0 if self.tied else self.vocab))

    @property
    def head_params(self) -> int:
        """The output projection; a tied embedding table is counted here."""
        return self.hidden * self.vocab

    @property
    def attention_params(self) -> int:
        """Projections of all attention layers, linear ones included."""
        h, heads = self.hidden, self.heads
        if self.o_lora:  # one shared latent of head_dim; the output projection in groups
            q = h * self.q_lora + self.q_lora * heads * self.head_dim
            out = heads * self.head_dim * self.o_lora + self.o_groups * self.o_lora * h
            return self.layers * (q + h * self.head_dim + out)
        if self.kv_lora:
            qk = heads * (self.nope_dim + self.rope_dim)
            q = h * self.q_lora + self.q_lora * qk if self.q_lora else h * qk
            latent = self.kv_lora * heads * (self.nope_dim + self.v_dim)
            kv = h * (self.kv_lora + self.rope_dim) + latent
            full = q + kv + heads * self.v_dim * h
            window = 0
        else:
            gate = 2 if self.output_gate else 1
            dim, kv_heads = self.head_dim, self.kv_heads
            full = h * dim * (heads * (1 + gate) + kv_heads * (1 if self.k_eq_v else 2))
            dim = self.window_head_dim or dim
            kv_heads = self.window_kv_heads or kv_heads
            window = h * dim * (heads * (1 + gate) + kv_heads * 2)
        keys = self.linear_k_heads * self.linear_head_dim
        values = self.linear_v_heads * self.linear_head_dim
        linear = h * (2 * keys + 3 * values + 2 * self.linear_v_heads)
        linear += self.linear_kernel * (2 * keys + values)
        return self.full_layers * full + self.window_layers * window + self.linear_layers * linear

    def _indexer_params(self) -> int:
        width = self.index_heads * self.index_dim
        per_layer = self.q_lora * width + self.hidden * (self.index_dim + self.index_heads)
        return self.index_layers * per_layer

    def _dense_ffn_params(self) -> int:
        dense = (self.layers - self.moe_layers) * self.ffn_matrices * self.hidden * self.ffn
        router = self.hidden * self.experts
        shared = self.ffn_matrices * self.hidden * self.shared_ffn
        down_up = 2 * self.hidden * self.expert_hidden
        return dense + self.moe_layers * (router + shared + down_up)

    @property
    def body_params(self) -> int:
        """Matrices every token passes, without experts and output head."""
        return self.attention_params + self._indexer_params() + self._dense_ffn_params()

    @property
    def expert_params(self) -> int:
        """One routed expert of one layer."""
        return self.ffn_matrices * (self.expert_hidden or self.hidden) * self.expert_ffn

    @property
    def routed_params(self) -> int:
        """All routed experts of all layers."""
        return self.moe_layers * self.experts * self.expert_params

    @property
    def vector_params(self) -> int:
        """Norms and attention biases: small, but they make the totals exact."""
        norms = (2 * self.layers + 1) * self.hidden
        bias = self.layers * self.head_dim * (self.heads + 2 * self.kv_heads)
        return norms + (bias if self.attention_bias else 0)

    @property
    def params_total(self) -> int:
        """All parameters of the language model."""
        tables = self.embedding_params + self.head_params
        return tables + self.body_params + self.routed_params + self.vector_params

    @property
    def params_active(self) -> int:
        """Parameters one token touches: everything but the experts it is not sent to."""
        idle = self.moe_layers * (self.experts - self.top_k) * self.expert_params
        return self.params_total - idle

    @property
    def flops_per_token(self) -> int:
        """2 FLOPs per matrix parameter a token passes (head included, look-ups and norms not)."""
        active_experts = self.moe_layers * self.top_k * self.expert_params
        return 2 * (self.body_params + self.head_params + active_experts)

    @property
    def pair_flops(self) -> int:
        """Attention FLOPs per (query, key) pair, all heads, full layers only.

        2 for the score and 2 for the sum per dimension. A windowed layer's pairs are bounded by
        its window and left out; sparse attention is charged as if it were dense.
        """
        if self.kv_lora and not self.strides:
            return 2 * self.heads * (self.nope_dim + self.rope_dim + self.v_dim) * self.full_layers
        per_layer = 4 * self.heads * (self.head_dim or self.kv_lora + self.rope_dim)
        if self.strides:
            return round(per_layer * sum(layers / stride for stride, layers in self.strides))
        return per_layer * self.full_layers

    def weight_dtypes(self, dtype: str = "native") -> tuple[str, str]:
        """(format of the dense matrices, format of the experts); "native": as published."""
        if dtype == "native":
            return self.dtype, self.expert_dtype
        dtype_bytes(dtype)
        return dtype, dtype

    def weight_bytes(self, dtype: str = "native") -> int:
        """Bytes of all weights, all GPUs together; quantised formats leave tables and head bf16."""
        dense, expert = self.weight_dtypes(dtype)
        plain = max(2.0, dtype_bytes(dense))
        tables = (self.embedding_params + self.head_params + self.vector_params) * plain
        matrices = self.body_params * dtype_bytes(dense)
        return round(tables + matrices + self.routed_params * dtype_bytes(expert))

    def to_dict(self) -> dict[str, Any]:
        """What ``minilab models --json`` prints: plain JSON values."""
        return {
            "name": self.name,
            "params_total": self.params_total,
            "params_active": self.params_active,
            "flops_per_token": self.flops_per_token,
            "kv_bytes_per_token": {d: self.kv_bytes_per_token(d) for d in ("bf16", "fp8")},
            "full_kv_bytes_per_token": self.full_kv_bytes_per_token(),
            "window_kv_bytes_per_token": self.window_kv_bytes_per_token(),
            "state_bytes": self.state_bytes(),
            "weight_bytes": {d: self.weight_bytes(d) for d in ("native", "bf16", "fp8")},
            "geometry": self.geometry(),
        }
