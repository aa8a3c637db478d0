"""DeepseekDecoder: DeepSeek-V2 and V3 over a paged cache of latents.

It stands where ``engine.model.Decoder`` stands, and nothing above it knows the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from minilab.engine.deepseek.attention import Absorbed, LatentAttention
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.layer import DeepseekLayer
from minilab.engine.deepseek.mtp_module import MtpModule
from minilab.engine.deepseek.shapes import has_mtp
from minilab.engine.moe.layer import MoELayer
from minilab.engine.paged_model import PagedModel, Weights


class DeepseekDecoder(PagedModel):
    """A model and its KV cache.

    Attributes:
        kv_cache: [num_layers, 1, num_blocks, block_size, kv_lora_rank + qk_rope_head_dim]: one row
            per token is both its key and its value.
        attention: how latents are attended to: ``Absorbed``, unless another is given.
        mtp: the module that guesses one token further, where the weights bring one; ``spec.mtp``
            drafts with it.
    """

    config: DeepseekConfig
    layers: Sequence[DeepseekLayer]

    def __init__(
        self,
        config: DeepseekConfig,
        weights: Weights,
        num_blocks: int,
        block_size: int,
        attention: LatentAttention | None = None,
    ) -> None:
        super().__init__(config, weights)
        pages = (num_blocks, block_size, config.cache_width)
        self.kv_cache = self.new_cache(config.num_layers, 1, *pages)
        self.attention = attention or Absorbed(config.kv_lora_rank)
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
