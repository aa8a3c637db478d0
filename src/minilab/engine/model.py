"""Decoder: Llama, Qwen2 and Qwen3 over a paged KV cache."""

from __future__ import annotations

import torch

from minilab.engine.attention import Attention, KernelAttention
from minilab.engine.batched_attention import BatchedAttention
from minilab.engine.config import DecoderConfig
from minilab.engine.layer import DecoderLayer
from minilab.engine.paged_model import PagedModel, Weights


class Decoder(PagedModel):
    """A model and its KV cache.

    Attributes:
        kv_cache: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]: keys, values; of
            the weights' dtype, unless one in another format is given with its own attention.
        attention: the kernels on a GPU, groups of sequences on a CPU, unless another is given.
    """

    config: DecoderConfig

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        num_blocks: int,
        block_size: int,
        attention: Attention | None = None,
        kv_cache: torch.Tensor | None = None,
    ) -> None:
        super().__init__(config, weights)
        if kv_cache is None:
            heads = (config.num_kv_heads, config.head_dim)
            kv_cache = self.new_cache(config.num_layers, 2, num_blocks, block_size, *heads)
        self.kv_cache = kv_cache
        self.attention = attention or self._usual_attention()
        self.layers = [DecoderLayer(config, weights, n) for n in range(config.num_layers)]

    def _usual_attention(self) -> Attention:
        if self.device.type == "cpu":
            return BatchedAttention(self.config.num_heads // self.config.num_kv_heads, self.dtype)
        return KernelAttention()
