"""One decode step of one request, from JSON to JSON: ``python -m minilab.kernels.mla_step``.

For a program that wants a kernel run without importing torch or triton itself, and by Triton's
interpreter where there is no CUDA card: that is chosen when triton is imported, so a process that
begins with the choice is the place for it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels import triton

from minilab.kernels.device import choose_backend
from minilab.kernels.mla_decode import mla_decode

BLOCK = 16


def step(given: dict[str, Any]) -> dict[str, Any]:
    """Run ``mla_decode`` on a cache laid into shuffled pages.

    Args:
        given: "query" [heads][latent + rope], "cache" [tokens][latent + rope], "rope" (numbers of
            the rotary part at the end of both) and "scale" of the scores.

    Returns:
        "backend": the name of what ran; "latents": [heads][latent].

    Raises:
        ValueError: ``mla_decode`` refuses the widths; its message names them.
    """
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    query, cache = torch.tensor(given["query"]), torch.tensor(given["cache"])
    tokens, width = cache.shape
    blocks = -(-tokens // BLOCK)
    order = torch.randperm(2 * blocks, generator=torch.Generator().manual_seed(0))[:blocks]
    pages = torch.zeros(2 * blocks, BLOCK, width)
    for rows, page in zip(torch.split(cache, BLOCK), order.tolist(), strict=True):
        pages[page, : len(rows)] = rows
    out = mla_decode(
        query[None].to(place),
        pages.to(place),
        order[None].to(place, torch.int32),
        torch.tensor([tokens], dtype=torch.int32, device=place),
        given["scale"],
        kv_lora_rank=width - given["rope"],
    )
    backend = choose_backend("mla_decode", place, "auto").name
    return {"backend": backend, "latents": out[0].tolist()}


if __name__ == "__main__":
    print(json.dumps(step(json.load(sys.stdin))))
