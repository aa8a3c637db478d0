"""Which experts a real model chose, token by token: a trace that needs no torch to read.

The choices are those of the tiny DeepSeek-V3 of ``minilab.engine.deepseek.shipped`` on held-out
text: 4 layers with experts and the MTP module's, top 4 of 32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minilab.facts.errors import InputError

ROUTES = Path(__file__).parent / "tiny_deepseek_routes.npz"
NUM_EXPERTS = 32
WINDOW = 255
"""Tokens that follow each other in the text; the next window is another place."""
DOMAINS = ("code", "prose")

Routes = npt.NDArray[np.uint8]


def load_routes(domain: str) -> Routes:
    """uint8 [5 layers, tokens, 4]: experts of each token, best first; the last layer is MTP's.

    ``domain``: "code" or "prose".

    Raises:
        InputError: another domain.
    """
    routes: Routes = _read(domain)
    return routes


def train_loads(domain: str) -> npt.NDArray[np.int64]:
    """int64 [5, 32]: the experts' loads on training text of a domain, to plan a placement from.

    Raises:
        InputError: another domain.
    """
    loads: npt.NDArray[np.int64] = _read(domain, "_train")
    return loads


def loads_without_bias(domain: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Two int64 [5, 32]: loads on training and on held-out text with the routers' bias at zero.

    That bias is all that balances this model, so these are the loads it would have without it.

    Raises:
        InputError: another domain.
    """
    return _read(domain, "_train_unbiased"), _read(domain, "_unbiased")


def _read(domain: str, which: str = "") -> npt.NDArray[Any]:
    if domain not in DOMAINS:
        raise InputError(f"domain {domain!r}; give one of {', '.join(DOMAINS)}")
    with np.load(ROUTES, allow_pickle=False) as file:
        found: npt.NDArray[Any] = file[f"{domain}{which}"]
    return found


def expert_loads(routes: Routes, num_experts: int = NUM_EXPERTS) -> npt.NDArray[np.int64]:
    """int64 [layers, num_experts]: how often each expert was chosen."""
    rows = [np.bincount(layer.ravel(), minlength=num_experts) for layer in routes]
    return np.stack(rows).astype(np.int64)
