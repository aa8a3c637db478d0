"""Geometry: the integers that describe a language model, as models.json holds them.

It computes nothing; ``facts.models.ModelSpec`` does.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Geometry:
    """One model's counts and widths, no units; 0 means "has none".

    ``layers`` = full + window + linear layers = dense + MoE layers. ``dtype`` and
    ``expert_dtype`` are the formats of the published weights. ``source`` says where it was read.
    """

    name: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    head_dim: int = 0
    kv_heads: int = 0
    # Attention: which layers keep what
    full_layers: int = 0
    window_layers: int = 0
    linear_layers: int = 0
    window: int = 0
    window_kv_heads: int = 0
    window_head_dim: int = 0
    strides: tuple[tuple[int, int], ...] = ()  # (tokens per entry, layers): DeepSeek-V4
    k_eq_v: bool = False  # full layers use one projection for K and V
    output_gate: bool = False
    attention_bias: bool = False
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    v_dim: int = 0
    o_lora: int = 0
    o_groups: int = 0
    index_layers: int = 0  # layers with a sparse-attention indexer
    index_heads: int = 0
    index_dim: int = 0
    linear_k_heads: int = 0
    linear_v_heads: int = 0
    linear_head_dim: int = 0
    linear_kernel: int = 0
    # Feed-forward
    ffn: int = 0
    ffn_matrices: int = 3  # 3 with a gate (SwiGLU), 2 without
    moe_layers: int = 0
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    expert_hidden: int = 0  # 0: as hidden
    shared_ffn: int = 0  # width of all shared experts together
    # The rest
    tied: bool = False
    positions: int = 0  # learned position embeddings
    max_len: int = 0
    dtype: str = "bf16"
    expert_dtype: str = "bf16"
    hub: str = ""
    note: str = ""
    source: str = ""

    def geometry(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as models.json holds them."""
        defaults = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        values = asdict(self)
        values["strides"] = [list(pair) for pair in self.strides]
        return {k: v for k, v in values.items() if k == "name" or v not in (defaults.get(k), [])}
