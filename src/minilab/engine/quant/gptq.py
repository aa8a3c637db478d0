"""GPTQ, small: round one input column after the other, and let the rest make up for the error.

With H = X'X of a calibration text, the error of rounding column i can be cancelled, as far as the
inputs are correlated, by moving the columns not yet rounded by -err / U[i,i] * U[i, i:], where U
is the upper Cholesky factor of H^-1 (Frantar et al., 2210.17323). Scales and zero points of a group
are taken when its first column comes up, from the weights as they have become by then.
"""

from __future__ import annotations

import torch

from minilab.engine.quant.grid import Grid, find_grid, round_to
from minilab.facts.errors import InputError


def quantise(
    weight: torch.Tensor,
    inputs: torch.Tensor,
    group_size: int = 128,
    bits: int = 4,
    damp: float = 0.01,
) -> Grid:
    """The grid of ``weight`` [out_features, in_features] chosen for these inputs.

    Args:
        inputs: [num_tokens, in_features] of a calibration text.
        damp: share of H's mean diagonal that is added to it, so that it can be inverted.

    Raises:
        InputError: inputs of another width, or H cannot be inverted (raise ``damp``).
    """
    count = weight.shape[1]
    if inputs.dim() != 2 or inputs.shape[1] != count:
        raise InputError(f"inputs are {list(inputs.shape)}, the weight has {count} inputs")
    factor = _factor(inputs, damp)
    rest = weight.float().clone()
    q = torch.zeros_like(rest)
    scales, zeros = [], []
    for start in range(0, count, group_size):
        end = min(start + group_size, count)
        scale, zero = find_grid(rest[:, start:end], bits)
        errors = torch.zeros(len(rest), end - start)
        for at in range(start, end):
            column = rest[:, at : at + 1]
            q[:, at : at + 1] = round_to(column, scale, zero, bits)
            back = (q[:, at : at + 1] - zero) * scale
            errors[:, at - start] = ((column - back) / factor[at, at])[:, 0]
            rest[:, at:end] -= errors[:, at - start, None] * factor[at, at:end]
        rest[:, end:] -= errors @ factor[start:end, end:]
        scales.append(scale)
        zeros.append(zero)
    return Grid(q.int(), torch.cat(scales, dim=1), torch.cat(zeros, dim=1), group_size, bits)


def _factor(inputs: torch.Tensor, damp: float) -> torch.Tensor:
    """Upper Cholesky factor of the inverse of H = X'X, damped; inputs never seen count as damp."""
    x = inputs.float()
    gram = x.T @ x
    diagonal = gram.diagonal()
    diagonal += damp * diagonal.mean() + 1e-8
    try:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        factor: torch.Tensor = torch.linalg.cholesky(inverse, upper=True)
    except RuntimeError as error:  # torch's LinAlgError is one
        raise InputError(f"H cannot be inverted ({error}); raise damp ({damp})") from None
    return factor
