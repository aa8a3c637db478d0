"""AWQ, small: scale up the inputs' channels that matter before rounding, and scale them back.

A weight column that meets large activations deserves finer steps. Multiplying it by s (and its
input by 1/s) leaves the product as it is, but moves the column up in its group's range, where the
same step is a smaller error. s = (mean |input|)^alpha, alpha chosen by the output's squared error
(Lin et al., 2306.00978). 1/s is folded into what makes the input: a norm's weight, or up_proj's
rows; where there is nothing to fold into (o_proj behind grouped heads) nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from minilab.engine.config import DecoderConfig
from minilab.engine.quant.grid import Grid, round_to_nearest
from minilab.engine.quant.passes import matrices

STEPS = 10
TOKENS = 256
"""Tokens of the calibration text that the search for alpha looks at, evenly spaced."""


@dataclass(frozen=True)
class Scaled:
    """Channel scales [in_features] for matrices that share an input, and the alpha that won."""

    scales: torch.Tensor
    alpha: float
    error: float
    plain_error: float


def choose_scales(
    weights: Sequence[torch.Tensor], inputs: torch.Tensor, group_size: int = 128
) -> Scaled:
    """The scales with the least squared error of the products, over alpha = 0, 0.1 ... 1.

    Args:
        weights: matrices [out_features, in_features] multiplied with the same input.
        inputs: [num_tokens, in_features] from a calibration text.
    """
    size = inputs.float().abs().mean(0).clamp(min=1e-4)
    few = inputs.float()[:: max(1, len(inputs) // TOKENS)]
    best = None
    plain = 0.0
    for step in range(STEPS + 1):
        alpha = step / STEPS
        scales = size**alpha
        scales = scales / (scales.max() * scales.min()).sqrt()
        error = sum(_error(w, scales, few, group_size) for w in weights)
        plain = error if step == 0 else plain
        if best is None or error < best.error:
            best = Scaled(scales, alpha, error, plain)
    assert best is not None
    return best


def _error(
    weight: torch.Tensor, scales: torch.Tensor, inputs: torch.Tensor, group_size: int
) -> float:
    """Squared error of the product with ``inputs``."""
    off = round_to_nearest(weight * scales, group_size).weight() / scales - weight
    return float((inputs @ off.T).square().sum())


_SHARED = (
    (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "input_layernorm"),
    (("mlp.gate_proj", "mlp.up_proj"), "post_attention_layernorm"),
    (("mlp.down_proj",), "mlp.up_proj"),
)


def quantise(
    config: DecoderConfig,
    weights: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    group_size: int = 128,
) -> tuple[dict[str, torch.Tensor], dict[str, Grid]]:
    """AWQ of a whole model.

    Args:
        inputs: [num_tokens, in_features] by matrix name (``calibrate.matrix_inputs``).

    Returns:
        The weights with 1/s folded in (norms, up_proj), still in floats, and the grids of all
        matrices; a model runs on the first with the second's ``weight()`` in place.
    """
    folded = dict(weights)
    for layer in range(config.num_layers):
        name = f"model.layers.{layer}."
        for parts, before in _SHARED:
            keys = [f"{name}{part}.weight" for part in parts]
            scales = choose_scales([folded[k] for k in keys], inputs[name + parts[0]], group_size)
            for key in keys:
                folded[key] = folded[key] * scales.scales
            source = f"{name}{before}.weight"
            shape = (-1, 1) if folded[source].dim() == 2 else (-1,)
            folded[source] = folded[source] / scales.scales.reshape(shape)
    grids = {m: round_to_nearest(folded[m + ".weight"], group_size) for m in matrices(config)}
    return folded, grids
