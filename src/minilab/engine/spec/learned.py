"""What learned drafters share: their files, and whether these fit the target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from minilab.facts.errors import InputError


def read_drafter(path: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a drafter's safetensors file, floats as float32.

    Raises:
        InputError: no such file, or not one.
    """
    from safetensors.torch import load_file

    try:
        found = load_file(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be read as a drafter ({error})") from None
    return {key: t.float() if t.is_floating_point() else t for key, t in found.items()}


def check_shapes(
    weights: Mapping[str, torch.Tensor], wanted: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise InputError for a drafter that lacks a tensor or was made for another target."""
    if "vocabulary" not in weights:
        raise InputError("drafter: no tensor vocabulary, the tokens that it may guess")
    for name, shape in wanted.items():
        if name not in weights:
            raise InputError(f"drafter: no tensor {name}; it must have shape {list(shape)}")
        if tuple(weights[name].shape) != shape:
            raise InputError(
                f"drafter: {name} has shape {list(weights[name].shape)}, the target needs "
                f"{list(shape)}; was it trained for another model?"
            )
