"""Which model class a config.json stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.config import FAMILIES as LLAMA_LIKE
from minilab.engine.config import DecoderConfig
from minilab.engine.deepseek.config import FAMILIES as DEEPSEEK
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.engine.model import Decoder
from minilab.facts.errors import InputError

ModelConfig = DecoderConfig | DeepseekConfig
FAMILIES = (*LLAMA_LIKE, *DEEPSEEK)


class Model(Protocol):
    """What the executor runs; ``engine.model.Decoder`` says what the words mean."""

    @property
    def config(self) -> ModelConfig: ...

    kv_cache: torch.Tensor
    device: torch.device
    dtype: torch.dtype

    def forward(self, batch: StepBatch) -> torch.Tensor: ...

    def hidden(self, batch: StepBatch) -> torch.Tensor: ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


def config_from_hf(said: Mapping[str, Any]) -> ModelConfig:
    """The config of whichever family a config.json names.

    Raises:
        InputError: none that is built here, or a part that is not.
    """
    family = said.get("model_type")
    if family in DEEPSEEK:
        return DeepseekConfig.from_hf(said)
    if family in LLAMA_LIKE:
        return DecoderConfig.from_hf(said)
    raise InputError(
        f"model_type is {family!r}; the engine runs {', '.join(FAMILIES)}; use one of these"
    )


def new_model(
    config: ModelConfig, weights: Mapping[str, torch.Tensor], num_blocks: int, block_size: int
) -> Model:
    """A model of that family with an empty cache."""
    if isinstance(config, DeepseekConfig):
        return DeepseekDecoder(config, weights, num_blocks, block_size)
    return Decoder(config, weights, num_blocks, block_size)
