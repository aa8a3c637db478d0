"""PagedModel: what every model has around its layers, and the way of a step through them.

Llama-like and DeepSeek models differ in their layers, in what a token leaves in the cache, and in
how it is attended to. All else is here, once. Weights keep the names of the Hugging Face
checkpoints, so that loading is a dictionary look-up and a reader can follow a tensor from the file
to its use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.nn.functional import embedding

from minilab.engine.batch import StepBatch
from minilab.engine.config import DecoderConfig
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.linear import Linear
from minilab.engine.norm import norm
from minilab.engine.rotary import Rotary, Tables
from minilab.engine.weight_check import check_weights

Weights = Mapping[str, torch.Tensor]


class Layer(Protocol):
    """One layer of a model."""

    def __call__(
        self, x: torch.Tensor, attend: Any, cache: torch.Tensor, rotary: Rotary, tables: Tables
    ) -> torch.Tensor:
        """[num_tokens, hidden_size] to the same; writes what the tokens leave into ``cache``.

        ``attend``: the step of the model's attention; ``tables``: the tokens' own, from ``rotary``.
        """
        ...


class PagedModel:
    """A model and its KV cache. A subclass brings layers and their attention.

    Attributes:
        kv_cache: [num_layers, ...], pages of what tokens leave behind.
        layers: as many.
        attention: prepares the step of a batch.
        embedding, norm_weight, head: [vocab_size, hidden_size], [hidden_size], and the output head.
    """

    config: DecoderConfig | DeepseekConfig
    layers: Sequence[Layer]
    attention: Callable[[StepBatch], Any]
    kv_cache: torch.Tensor

    def __init__(self, config: DecoderConfig | DeepseekConfig, weights: Weights) -> None:
        check_weights(config, weights)
        table = weights["model.embed_tokens.weight"]
        self.config = config
        self.device, self.dtype = table.device, table.dtype
        self.rotary = Rotary(config, self.device)
        self.embedding = table
        self.norm_weight = weights["model.norm.weight"]
        self.head = Linear(table if config.tie_word_embeddings else weights["lm_head.weight"])

    def new_cache(self, *shape: int) -> torch.Tensor:
        """An empty cache of ``shape`` on the weights' device, in their dtype."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> torch.Tensor:
        """Logits float32 [len(batch.sampled), vocab_size]; writes the step's KV on the way."""
        return self.logits(self.hidden(batch)[batch.sampled])

    @torch.inference_mode()
    def hidden(self, batch: StepBatch) -> torch.Tensor:
        """What the last layer puts out, [num_tokens, hidden_size], before the final norm."""
        x = embedding(batch.token_ids, self.embedding)
        tables = self.rotary.tables(batch.positions)
        attend = self.attention(batch)
        for layer, cache in zip(self.layers, self.kv_cache, strict=True):
            x = layer(x, attend, cache, self.rotary, tables)
        return x

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits float32 [num_tokens, vocab_size] of rows of ``hidden``."""
        return self.head(self.normed(hidden)).float()

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Rows of ``hidden`` after the final norm: the features that drafters learn from."""
        return norm(hidden, self.norm_weight, self.config.rms_norm_eps)
