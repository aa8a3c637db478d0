"""A random DeepSeek-V3 of the smallest size, with an MTP module, for tests without transformers."""

from __future__ import annotations

from typing import Any

import torch

from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.shapes import deepseek_shapes

HF: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "q_lora_rank": 20,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 20,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
}
CONFIG = DeepseekConfig.from_hf(HF)


def random_weights(mtp: bool = True) -> dict[str, torch.Tensor]:
    """Spread like ``parity``'s: flat logits would hide mistakes."""
    dice = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=dice) * 0.15 + name.endswith("norm.weight")
        for name, shape in deepseek_shapes(CONFIG, mtp).items()
    }
