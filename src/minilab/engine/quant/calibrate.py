"""calibrate: one text through the model, and what it shows of keys, values and inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from minilab.engine.config import DecoderConfig
from minilab.engine.quant.passes import Pass, matrices
from minilab.engine.quant.scales import KVStatistics
from minilab.kernels import e4m3

WINDOW = 512


def kv_statistics(
    config: DecoderConfig,
    weights: Mapping[str, torch.Tensor],
    token_ids: Sequence[int],
    window: int = WINDOW,
) -> KVStatistics:
    """Magnitudes of keys and values of ``token_ids``, read in windows."""
    seen = KVStatistics(config.num_layers)

    def watch(
        layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        seen.add(layer, keys, values)
        return keys, values

    model = Pass(config, weights, kv_hook=watch)
    for start in range(0, len(token_ids), window):
        model.hidden(token_ids[start : start + window])
    return seen


def matrix_inputs(
    config: DecoderConfig,
    weights: Mapping[str, torch.Tensor],
    token_ids: Sequence[int],
    window: int = WINDOW,
) -> dict[str, torch.Tensor]:
    """What each matrix is multiplied with, [num_tokens, in_features] by name."""
    found: dict[str, list[torch.Tensor]] = {name: [] for name in matrices(config)}

    def watch(name: str, x: torch.Tensor) -> torch.Tensor:
        found[name].append(x.clone())
        return x

    model = Pass(config, weights, input_hook=watch)
    for start in range(0, len(token_ids), window):
        model.hidden(token_ids[start : start + window])
    return {name: torch.cat(parts) for name, parts in found.items()}


def input_scales(inputs: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """A static e4m3 scale for each matrix's input: its largest magnitude onto 448."""
    largest = {name: float(x.abs().max()) for name, x in inputs.items()}
    return {name: (most / e4m3.LARGEST if most > 0 else 1.0) for name, most in largest.items()}
