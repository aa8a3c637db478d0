"""Room: how many KV tokens a deployment holds, and the fewest GPUs on which a model fits.

The budget of ``facts.capacity``: utilisation x memory - weights - non-torch - activation peak.
"""

import math
from typing import Any

BLOCK = 16
UTILIZATION = 0.9
NON_TORCH = 512 * 2**20
BATCHED_TOKENS = 8192
SEQUENCES = 256
SIZES = [1, 2, 4, 8]
"""Tensor-parallel sizes that are tried."""


def weight_bytes(tables: Any, model: str, weights: str) -> float:
    """Bytes of all weights in a format; tables and head stay bf16."""
    return float(tables["models"][model]["weight_bytes"][weights])


def kv_tokens(tables: Any, model: str, gpu: str, tp: int, weights: str, kv: str) -> int:
    """KV tokens of one instance on ``tp`` GPUs; 0 when the weights leave no room."""
    m, g = tables["models"][model], tables["gpus"][gpu]
    width = max(m["ffn"], m["top_k"] * m["expert_ffn"] + m["shared_ffn"])
    per_token = 2 * (2 * m["hidden"] + 3 * math.ceil(width / tp))
    peak = BATCHED_TOKENS * per_token + SEQUENCES * 6 * math.ceil(m["vocab"] / tp)
    left = g["mem_bytes"] * UTILIZATION - weight_bytes(tables, model, weights) / tp
    left -= NON_TORCH + peak
    size = sum(m["kv"][kv][str(tp)]) * BLOCK
    return max(0, int(left // size) * BLOCK) if size else 0


def least_tp(tables: Any, model: str, gpu: str, weights: str, kv: str, tokens: float) -> int:
    """The smallest size of SIZES on which ``tokens`` of KV fit; 0 if none does."""
    for tp in SIZES:
        if kv_tokens(tables, model, gpu, tp, weights, kv) >= tokens:
            return tp
    return 0
