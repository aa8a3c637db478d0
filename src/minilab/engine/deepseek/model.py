"""DeepseekDecoder: DeepSeek-V2 and V3 over a paged cache of latents.

It stands where ``engine.model.Decoder`` stands, and nothing above it knows the difference. Weights
keep the names of the public checkpoints.
"""

from __future__ import annotations

import torch
from torch.nn.functional import embedding

from minilab.engine.batch import StepBatch
from minilab.engine.deepseek.attention import Absorbed, LatentAttention
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.layer import DeepseekLayer, Weights, norm
from minilab.engine.deepseek.mtp_module import MtpModule
from minilab.engine.deepseek.shapes import has_mtp
from minilab.engine.linear import Linear
from minilab.engine.moe.layer import MoELayer
from minilab.engine.rotary import Rotary
from minilab.engine.weight_check import check_weights


class DeepseekDecoder:
    """A model and its KV cache.

    Attributes:
        kv_cache: [num_layers, 1, num_blocks, block_size, kv_lora_rank + qk_rope_head_dim]: one row
            per token is both its key and its value.
        attention: how latents are attended to: ``Absorbed``, unless another is given.
        mtp: the module that guesses one token further, where the weights bring one; ``spec.mtp``
            drafts with it.
    """

    def __init__(
        self,
        config: DeepseekConfig,
        weights: Weights,
        num_blocks: int,
        block_size: int,
        attention: LatentAttention | None = None,
    ) -> None:
        check_weights(config, weights)
        table = weights["model.embed_tokens.weight"]
        self.config = config
        self.device, self.dtype = table.device, table.dtype
        self.rotary = Rotary(config, self.device)
        shape = (config.num_layers, 1, num_blocks, block_size, config.cache_width)
        self.kv_cache = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.attention = attention or Absorbed(config.kv_lora_rank)
        self.embedding = table
        self.norm_weight = weights["model.norm.weight"]
        self.head = Linear(table if config.tie_word_embeddings else weights["lm_head.weight"])
        self.layers = [DeepseekLayer(config, weights, n) for n in range(config.num_layers)]
        self.mtp = MtpModule(config, weights) if has_mtp(config, weights) else None

    @property
    def mixtures(self) -> list[MoELayer]:
        """The layers' mixtures of experts, in order: to watch, or to give other experts."""
        return [layer.mlp for layer in self.layers if isinstance(layer.mlp, MoELayer)]

    @property
    def all_mixtures(self) -> list[MoELayer]:
        """The same, and that of the MTP module."""
        own = self.mtp.layer.mlp if self.mtp else None
        return [*self.mixtures, own] if isinstance(own, MoELayer) else self.mixtures

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
