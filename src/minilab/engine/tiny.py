"""A model of random weights that needs no download: for tests, and to try the server with.

It speaks bytes, and says nothing that makes sense.
"""

from __future__ import annotations

import torch

from minilab.engine.config import DecoderConfig
from minilab.engine.weight_check import wanted_shapes

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
    """Weights float32 of a model with these shapes; the same ones for the same seed."""
    dice = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in wanted_shapes(config).items():
        drawn = torch.randn(shape, generator=dice) * _SPREAD
        weights[name] = drawn + 1 if name.endswith("norm.weight") else drawn
    return weights
