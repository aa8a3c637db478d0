"""Budget: where the memory of one GPU goes, and what is left for the KV cache.

    utilisation * memory - weights / tp - non-torch - activation peak - CUDA graphs = KV

The activation peak is an estimate from the shapes and CUDA graphs are not counted, so the answer
has a range: the estimate doubled with 1 GiB of graphs, and half of it with none.
"""

import math
from typing import Any

NON_TORCH = 512 * 2**20
GRAPHS = 2**30
MOST, LEAST = 2.0, 0.5
"""The activation peak over its estimate, at the ends of the range."""


def weight_bytes(model: dict[str, Any], dtype: str, sizes: dict[str, Any]) -> float:
    """All weights; formats with fewer bits leave tables, head and norms at 2 bytes."""
    dense = sizes[model["dtype"] if dtype == "native" else dtype]
    expert = sizes[model["expert_dtype"] if dtype == "native" else dtype]
    return float(
        model["tables"] * max(2.0, dense) + model["matrices"] * dense + model["routed"] * expert
    )


def activation(model: dict[str, Any], tp: int, batched: int, sequences: int) -> int:
    """``facts.capacity.activation_bytes``: residuals, the widest block, and the logits."""
    width = max(model["ffn"], model["top_k"] * model["expert_ffn"] + model["shared_ffn"])
    per_token = 2 * (2 * model["hidden"] + 3 * math.ceil(width / tp))
    return int(batched * per_token + sequences * 6 * math.ceil(model["vocab"] / tp))


class Budget:
    """One GPU's memory.

    Attributes:
        terms: [name, bytes, why], what is taken negative; left: their sum, for KV.
        least, most: the same at the ends of the range.
    """

    def __init__(self, tables: Any, asked: Any) -> None:
        model, card = tables["models"][asked.model], tables["gpus"][asked.gpu]
        memory, share = card["mem_bytes"], asked.utilization
        weights = weight_bytes(model, asked.weights, tables["dtype_bytes"]) / asked.tp
        peak = activation(model, asked.tp, asked.batched, asked.sequences)
        self.terms: list[list[Any]] = [
            ["memory", float(memory), card["label"]],
            ["left to others", -memory * (1 - share), f"1 - utilization {share:.3g}"],
            ["weights", -weights, f"{asked.weights}, over {asked.tp} GPUs"],
            ["non-torch", -float(NON_TORCH), "prior: CUDA context, NCCL"],
            [
                "activation peak",
                -float(peak),
                f"estimate for {asked.batched} tokens, {asked.sequences} sequences",
            ],
        ]
        self.left = sum([term[1] for term in self.terms])
        self.least = self.left - (MOST - 1.0) * peak - GRAPHS
        self.most = self.left + (1.0 - LEAST) * peak
        self.weights = weights
        self.memory = memory
