"""The tensors of a DeepSeek checkpoint, under their public names."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from minilab.engine.deepseek.config import DeepseekConfig

Shape = tuple[int, ...]
SHARED_AGAIN = ("embed_tokens.weight", "shared_head.head.weight")
"""What public checkpoints store again in the MTP layer: the model's own embedding and head."""


def deepseek_shapes(config: DeepseekConfig, with_mtp: bool) -> dict[str, Shape]:
    """Shape of every tensor that the engine reads; ``with_mtp``: of the first MTP module, too."""
    hidden = config.hidden_size
    shapes: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for number in range(config.num_layers + with_mtp):
        layer = _attention(config) | _mlp(config, number)
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    if with_mtp:
        at = f"model.layers.{config.num_layers}."
        shapes |= {f"{at}{n}.weight": (hidden,) for n in ("enorm", "hnorm", "shared_head.norm")}
        shapes[f"{at}eh_proj.weight"] = (hidden, 2 * hidden)
    return shapes


def has_mtp(config: DeepseekConfig, weights: Mapping[str, torch.Tensor]) -> bool:
    """Whether the checkpoint brings its MTP module; one saved by transformers does not."""
    own = f"model.layers.{config.num_layers}."
    return config.num_mtp_layers > 0 and any(name.startswith(own) for name in weights)


def is_spare(config: DeepseekConfig, name: str) -> bool:
    """Whether a tensor may stay unread: shared ones, and MTP modules behind the first."""
    if not name.startswith("model.layers."):
        return False
    number, rest = name.removeprefix("model.layers.").split(".", 1)
    layer = int(number) if number.isdigit() else -1
    if layer > config.num_layers:
        return layer < config.num_layers + config.num_mtp_layers
    return layer == config.num_layers and rest in SHARED_AGAIN


def _attention(config: DeepseekConfig) -> dict[str, Shape]:
    hidden, heads = config.hidden_size, config.num_heads
    asked = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.kv_a_proj_with_mqa.weight": (config.cache_width, hidden),
        "self_attn.kv_a_layernorm.weight": (config.kv_lora_rank,),
        "self_attn.kv_b_proj.weight": (
            heads * (config.qk_nope_head_dim + config.v_head_dim),
            config.kv_lora_rank,
        ),
        "self_attn.o_proj.weight": (hidden, heads * config.v_head_dim),
    }
    if config.q_lora_rank is None:
        shapes["self_attn.q_proj.weight"] = (asked, hidden)
    else:
        shapes["self_attn.q_a_proj.weight"] = (config.q_lora_rank, hidden)
        shapes["self_attn.q_a_layernorm.weight"] = (config.q_lora_rank,)
        shapes["self_attn.q_b_proj.weight"] = (asked, config.q_lora_rank)
    return shapes


def _mlp(config: DeepseekConfig, layer: int) -> dict[str, Shape]:
    hidden, routing = config.hidden_size, config.routing
    if routing is None or not config.has_experts(layer):
        return _gated("mlp.", config.intermediate_size, hidden)
    shapes: dict[str, Shape] = {"mlp.gate.weight": (routing.num_experts, hidden)}
    if routing.biased:
        shapes["mlp.gate.e_score_correction_bias"] = (routing.num_experts,)
    inner = config.moe_intermediate_size
    for expert in range(routing.num_experts):
        shapes |= _gated(f"mlp.experts.{expert}.", inner, hidden)
    if config.num_shared_experts:
        shapes |= _gated("mlp.shared_experts.", inner * config.num_shared_experts, hidden)
    return shapes


def _gated(at: str, inner: int, hidden: int) -> dict[str, Shape]:
    return {
        f"{at}gate_proj.weight": (inner, hidden),
        f"{at}up_proj.weight": (inner, hidden),
        f"{at}down_proj.weight": (hidden, inner),
    }
