"""What tensors a checkpoint must have: each one, of the right shape, and none that goes unused.

A tensor that nobody reads means another model than the one that would run: a bias that is not
added, or scales of quantised weights. The text would be wrong without an error.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from minilab.engine.config import DecoderConfig
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.shapes import deepseek_shapes, has_mtp, is_spare
from minilab.facts.errors import InputError

Shape = tuple[int, ...]
_COMPUTED = ".rotary_emb.inv_freq"  # older checkpoints store what config.json says already


def wanted_shapes(config: DecoderConfig) -> dict[str, Shape]:
    """Shape of every tensor of the model, under the names of Hugging Face checkpoints."""
    hidden, wide = config.hidden_size, config.intermediate_size
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer: dict[str, Shape] = {
        "self_attn.q_proj.weight": (heads, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, heads),
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if config.qkv_bias:
        layer |= {f"self_attn.{part}_proj.bias": (kv,) for part in "kv"}
        layer["self_attn.q_proj.bias"] = (heads,)
    if config.qk_norm:
        layer |= {f"self_attn.{part}_norm.weight": (config.head_dim,) for part in "qk"}
    shapes: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for number in range(config.num_layers):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    return shapes


def check_weights(
    config: DecoderConfig | DeepseekConfig,
    weights: Mapping[str, torch.Tensor],
    where: str = "checkpoint",
) -> None:
    """Compare a checkpoint with its config.

    Raises:
        InputError: a tensor is missing, has another shape, or has no use in the model.
    """
    if isinstance(config, DeepseekConfig):
        wanted = deepseek_shapes(config, has_mtp(config, weights))
    else:
        wanted = wanted_shapes(config)
    for name, shape in wanted.items():
        found = weights.get(name)
        if found is None:
            raise InputError(
                f"{where}: no tensor {name} (it must have shape {list(shape)}); is a file of the "
                "checkpoint missing?"
            )
        if tuple(found.shape) != shape:
            raise InputError(
                f"{where}: {name} has shape {list(found.shape)}, config.json says {list(shape)}"
            )
    spare = {"lm_head.weight"}  # stored although it is tied
    for name in weights:
        if name in wanted or name in spare or name.endswith(_COMPUTED):
            continue
        if not (isinstance(config, DeepseekConfig) and is_spare(config, name)):
            raise InputError(
                f"{where}: tensor {name} has no use in this engine; the model has a part that is "
                "not built here, or is quantised; use a plain checkpoint of one of its families"
            )
