"""latent_kernel: one step of absorbed MLA decode by the real kernel, in a process of its own.

Of its own, because Triton's interpreter is chosen when triton is imported, and a notebook may have
imported it long ago. Without a CUDA card the interpreter runs the kernel; without triton its torch
reference does. ``attend`` says which.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minilab.facts.errors import InputError

BLOCK = 16
Floats = npt.NDArray[np.float64]


class Attended(NamedTuple):
    """``backend``: what ran, "triton", "interpreter" or "reference". ``latents``: the outcome."""

    backend: str
    latents: Floats


def attend(query: Floats, cache: Floats, rope: int, scale: float) -> Attended:
    """Attention of one request over its cache of latents, which lies in shuffled pages.

    Args:
        query: float [heads, latent + rope], absorbed.
        cache: float [tokens, latent + rope].
        rope: length of the rotary part at the end of both; scale: of the scores.

    Returns:
        latents: float [heads, latent], the weighted mean of latents for each head.

    Raises:
        InputError: the widths differ, or the process failed (with its last line).
    """
    query, cache = np.asarray(query, float), np.asarray(cache, float)
    if query.ndim != 2 or cache.ndim != 2 or query.shape[1] != cache.shape[1]:
        raise InputError(
            f"query {list(query.shape)}, cache {list(cache.shape)}; give [heads, width] and "
            "[tokens, width] of one width, the latent and the rotary part"
        )
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
        np.savez(given, query=query, cache=cache, rope=rope, scale=scale)
        ran = subprocess.run(
            [sys.executable, "-m", "minilab.lab.latent_kernel", given, found],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            said = ran.stderr.strip().splitlines() or ["no message"]
            raise InputError(f"the kernel's process failed: {said[-1]}")
        return Attended(ran.stdout.strip(), np.load(found, allow_pickle=False))


def _run(given: Path, found: Path) -> str:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels import triton
    from minilab.kernels.device import choose_backend
    from minilab.kernels.mla_decode import mla_decode

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with np.load(given, allow_pickle=False) as file:
        query, cache = file["query"], file["cache"]
        rope, scale = int(file["rope"]), float(file["scale"])
    tokens, width = cache.shape
    blocks = -(-tokens // BLOCK)
    order = np.random.default_rng(0).permutation(2 * blocks)[:blocks]
    pages = torch.zeros(2 * blocks, BLOCK, width)
    for part, page in enumerate(order):
        rows = torch.from_numpy(cache[BLOCK * part : BLOCK * (part + 1)]).float()
        pages[page, : len(rows)] = rows
    table = torch.from_numpy(order.astype("int32"))[None].to(place)
    length = torch.tensor([tokens], dtype=torch.int32, device=place)
    asked = torch.from_numpy(query).float()[None].to(place)
    out = mla_decode(asked, pages.to(place), table, length, scale, kv_lora_rank=width - rope)
    np.save(found, out[0].double().cpu().numpy())
    return choose_backend("mla_decode", place, "auto").name


if __name__ == "__main__":
    print(_run(Path(sys.argv[1]), Path(sys.argv[2])))
