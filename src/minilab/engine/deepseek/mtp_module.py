"""MtpModule: DeepSeek-V3's module that guesses one token further than the model."""

from __future__ import annotations

import torch

from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.layer import DeepseekLayer
from minilab.engine.linear import Linear
from minilab.engine.norm import norm
from minilab.engine.paged_model import Weights


class MtpModule:
    """One layer more, on the model's feature of a token and the token after it.

    The report (arXiv 2412.19437, 2.2) draws it so: the feature and the next token's embedding, each
    normed, side by side through one projection, then a layer like the model's, its own norm, and
    the model's own head. Embedding and head are the model's.

    Attributes:
        layer: keeps its KV apart from the model's.
    """

    def __init__(self, config: DeepseekConfig, weights: Weights) -> None:
        at = f"model.layers.{config.num_layers}."
        self.layer = DeepseekLayer(config, weights, config.num_layers)
        self._join = Linear(weights[at + "eh_proj.weight"])
        self._token_norm = weights[at + "enorm.weight"]
        self._feature_norm = weights[at + "hnorm.weight"]
        self._norm = weights[at + "shared_head.norm.weight"]
        self._eps = config.rms_norm_eps

    def join(self, embedded: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """What the layer reads, [n, hidden_size], for the features of tokens (normed, as the
        model's head reads them) and the embeddings of the tokens after them."""
        tokens = norm(embedded, self._token_norm, self._eps)
        both = torch.cat((tokens, norm(features, self._feature_norm, self._eps)), dim=-1)
        return self._join(both)

    def feature(self, x: torch.Tensor) -> torch.Tensor:
        """What the head reads, and the next guess's feature, of the layer's output."""
        return norm(x, self._norm, self._eps)
