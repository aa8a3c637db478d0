"""Parameters: their names and shapes, and how they start.

They carry the names of the public checkpoints, except that a layer's experts are stacked in two
tensors (``experts.gate_up`` [experts, 2 * inter, hidden], ``experts.down`` [experts, hidden,
inter]); ``export.py`` takes them apart.
"""

from __future__ import annotations

import math

import torch

from tiny_deepseek.config import (
    EXPERTS,
    HEADS,
    HIDDEN,
    LATENT,
    LAYERS,
    MOE_LAYERS,
    MTP,
    NOPE,
    ROPE,
    VALUE,
    C,
)

Params = dict[str, torch.Tensor]


def shapes() -> dict[str, tuple[int, ...]]:
    """Shape of every parameter."""
    inter, wide = C["moe_intermediate_size"], C["intermediate_size"]
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (C["vocab_size"], HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (C["vocab_size"], HIDDEN),
    }
    for layer in range(LAYERS + 1):
        at = f"model.layers.{layer}."
        found |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "self_attn.q_a_proj.weight": (C["q_lora_rank"], HIDDEN),
            at + "self_attn.q_a_layernorm.weight": (C["q_lora_rank"],),
            at + "self_attn.q_b_proj.weight": (HEADS * (NOPE + ROPE), C["q_lora_rank"]),
            at + "self_attn.kv_a_proj_with_mqa.weight": (LATENT + ROPE, HIDDEN),
            at + "self_attn.kv_a_layernorm.weight": (LATENT,),
            at + "self_attn.kv_b_proj.weight": (HEADS * (NOPE + VALUE), LATENT),
            at + "self_attn.o_proj.weight": (HIDDEN, HEADS * VALUE),
            at + "post_attention_layernorm.weight": (HIDDEN,),
        }
        name, width = at + "mlp.", wide
        if layer in MOE_LAYERS:
            found[at + "mlp.gate.weight"] = (EXPERTS, HIDDEN)
            found[at + "mlp.experts.gate_up"] = (EXPERTS, 2 * inter, HIDDEN)
            found[at + "mlp.experts.down"] = (EXPERTS, HIDDEN, inter)
            name, width = at + "mlp.shared_experts.", inter * C["n_shared_experts"]
        found |= {
            name + "gate_proj.weight": (width, HIDDEN),
            name + "up_proj.weight": (width, HIDDEN),
            name + "down_proj.weight": (HIDDEN, width),
        }
    at = f"model.layers.{MTP}."
    found |= {at + part + ".weight": (HIDDEN,) for part in ("enorm", "hnorm", "shared_head.norm")}
    found[at + "eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
    return found


def start(seed: int) -> Params:
    """Random parameters: half of the usual spread, less where a branch joins the residual."""
    dice = torch.Generator().manual_seed(seed)
    params: Params = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            params[name] = torch.ones(shape)
            continue
        std = 0.5 if name == "model.embed_tokens.weight" else 0.5 / math.sqrt(shape[-1])
        if "o_proj" in name or "down" in name:
            std /= math.sqrt(2 * LAYERS)
        params[name] = torch.randn(shape, generator=dice) * std
    return params
