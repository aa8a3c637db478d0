"""latent_kernel: one step of absorbed MLA decode by the real kernel, in a process of its own.

Of its own, because Triton's interpreter is chosen when triton is imported, and a notebook may have
imported it long ago. Without a CUDA card the interpreter runs the kernel; without triton its torch
reference does. ``attend`` says which.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minilab.facts.errors import InputError

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
    given = {"query": query.tolist(), "cache": cache.tolist(), "rope": rope, "scale": scale}
    ran = subprocess.run(
        [sys.executable, "-m", "minilab.kernels.mla_step"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        said = ran.stderr.strip().splitlines() or ["no message"]
        raise InputError(f"the kernel's process failed: {said[-1]}")
    found = json.loads(ran.stdout)
    return Attended(found["backend"], np.asarray(found["latents"]))
