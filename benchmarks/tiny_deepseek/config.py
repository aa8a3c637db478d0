"""The model's shape: ``config.json``, as Hugging Face writes it, and its numbers by short names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = json.loads((Path(__file__).parent / "config.json").read_text())
C = CONFIG
HIDDEN, HEADS, EXPERTS = C["hidden_size"], C["num_attention_heads"], C["n_routed_experts"]
LATENT, ROPE = C["kv_lora_rank"], C["qk_rope_head_dim"]
NOPE, VALUE = C["qk_nope_head_dim"], C["v_head_dim"]
LAYERS, DENSE = C["num_hidden_layers"], C["first_k_dense_replace"]
MTP = LAYERS
"""The number of the MTP module's layer: it follows the model's own."""
MOE_LAYERS = [*range(DENSE, LAYERS), MTP]
