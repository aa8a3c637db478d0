"""Models of transformers, each made once."""

from __future__ import annotations

from typing import Any

import pytest
from parity import FAMILIES, LATENT_FAMILIES, Pair, pair


@pytest.fixture(scope="session", params=FAMILIES, name="pair")
def family_pair(request: Any) -> Pair:
    """A random model of each family, and the texts it gives."""
    pytest.importorskip("transformers", reason="needs transformers")
    return pair(request.param)


@pytest.fixture(scope="session", params=LATENT_FAMILIES, name="latent_pair")
def latent_family_pair(request: Any) -> Pair:
    """The same of the families that cache latents."""
    pytest.importorskip("transformers", reason="needs transformers")
    return pair(request.param)


@pytest.fixture(scope="session", params=(*FAMILIES, "deepseek_v3"), name="any_pair")
def any_family_pair(request: Any) -> Pair:
    """The same of all kinds."""
    pytest.importorskip("transformers", reason="needs transformers")
    return pair(request.param)
