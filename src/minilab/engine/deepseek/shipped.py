"""The tiny DeepSeek-V3 that the package brings, and the texts that it was not trained on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

from minilab.facts.errors import InputError

FOLDER = Path(__file__).parents[1] / "data" / "tiny_deepseek"
DOMAINS = ("code", "prose")


@cache
def held_out(domain: str) -> torch.Tensor:
    """int64: 65,536 tokens of files that were kept from training.

    ``domain``: "code" (the standard library) or "prose" (Python's documentation).

    Raises:
        InputError: another domain.
    """
    import numpy as np

    if domain not in DOMAINS:
        raise InputError(f"domain {domain!r}; give one of {', '.join(DOMAINS)}")
    with np.load(FOLDER / "heldout.npz") as file:
        return torch.from_numpy(file[domain].astype("i8"))


def held_out_windows(domain: str, count: int, length: int = 256) -> torch.Tensor:
    """int64 [count, length], windows spread evenly over ``held_out``: neighbours are alike."""
    whole = held_out(domain)
    starts = torch.linspace(0, len(whole) - length, count).long()
    return torch.stack([whole[start : start + length] for start in starts.tolist()])


@cache
def training_log() -> dict[str, Any]:
    """How it was trained: steps, seed, host, versions, corpus, loss curve."""
    said: dict[str, Any] = json.loads((FOLDER / "training.json").read_text())
    return said


def bits_per_byte(nll: torch.Tensor, domain: str) -> float:
    """Mean surprise of tokens (nats) as bits per byte of text: comparable over tokenizers."""
    text = training_log()["corpus"][domain]
    bits = nll.double().mean().item() / torch.log(torch.tensor(2.0, dtype=torch.float64)).item()
    return float(bits * text["shipped_tokens"] / text["shipped_bytes"])
