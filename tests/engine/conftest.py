"""Models of transformers, each made once."""

from __future__ import annotations

from typing import Any

import pytest
from parity import FAMILIES, Pair, pair


@pytest.fixture(scope="session", params=FAMILIES, name="pair")
def family_pair(request: Any) -> Pair:
    """A random model of each family, and the texts it gives."""
    pytest.importorskip("transformers", reason="needs transformers")
    return pair(request.param)
