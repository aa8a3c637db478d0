"""Tensor parallelism: every process has a slice of every matrix and sees every token.

Attention is cut by heads (the latent cache is not: each process keeps all of it), MLPs and experts
by their inner width. Each branch's output is then a part of a sum, and one all-reduce per branch,
two per layer, puts it together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from minilab.engine.deepseek.config import DeepseekConfig
from minilab.facts.errors import InputError

ROWS = ("q_proj", "q_b_proj", "kv_b_proj", "gate_proj", "up_proj")
COLUMNS = ("o_proj", "down_proj")


def tensor_slice(
    config: DeepseekConfig, weights: Mapping[str, torch.Tensor], rank: int, size: int
) -> tuple[DeepseekConfig, dict[str, torch.Tensor]]:
    """The model that one of ``size`` processes runs: fewer heads, narrower MLPs.

    Raises:
        InputError: heads or widths that ``size`` does not divide.
    """
    cut = {
        "num_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "moe_intermediate_size": config.moe_intermediate_size,
    }
    for name, value in cut.items():
        if value % size:
            raise InputError(f"{name} is {value}; {size} processes cannot share it evenly")
    smaller = replace(
        config,
        num_heads=config.num_heads // size,
        intermediate_size=config.intermediate_size // size,
        moe_intermediate_size=config.moe_intermediate_size // size,
    )
    return smaller, {name: _slice(name, tensor, rank, size) for name, tensor in weights.items()}


def _slice(name: str, tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    part = name.split(".")[-2]
    if part in ROWS:
        return tensor.chunk(size, dim=0)[rank]
    if part in COLUMNS:
        return tensor.chunk(size, dim=1)[rank]
    return tensor
