"""A model of random weights that needs no download: for tests, and to try the server with.

It speaks bytes, and says nothing that makes sense.
"""

from __future__ import annotations

import torch

from minilab.engine.config import DecoderConfig

TINY = DecoderConfig(
    vocab_size=259,  # 256 bytes and three marks, see Tokenizer.of_bytes
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=32,
    rms_norm_eps=1e-6,
    rope_theta=10_000.0,
    tie_word_embeddings=False,
    eos_token_ids=(256, 258),
    max_position_embeddings=2048,
)
_SPREAD = 0.15  # with the usual 0.02 all logits are nearly equal, and no test could tell mistakes


def random_weights(config: DecoderConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights float32 of a Llama with these shapes; the same ones for the same seed."""
    dice = torch.Generator().manual_seed(seed)
    hidden, wide = config.hidden_size, config.intermediate_size
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (config.vocab_size, hidden),
        "lm_head": (config.vocab_size, hidden),
        "model.norm": (hidden,),
    }
    for layer in range(config.num_layers):
        name = f"model.layers.{layer}."
        shapes |= {
            name + "self_attn.q_proj": (heads, hidden),
            name + "self_attn.k_proj": (kv, hidden),
            name + "self_attn.v_proj": (kv, hidden),
            name + "self_attn.o_proj": (hidden, heads),
            name + "mlp.gate_proj": (wide, hidden),
            name + "mlp.up_proj": (wide, hidden),
            name + "mlp.down_proj": (hidden, wide),
            name + "input_layernorm": (hidden,),
            name + "post_attention_layernorm": (hidden,),
        }
    return {
        f"{name}.weight": torch.ones(shape)
        if len(shape) == 1
        else torch.randn(shape, generator=dice) * _SPREAD
        for name, shape in shapes.items()
    }
