"""What moving bytes costs: a transfer between instances, an all-reduce between ranks."""

from __future__ import annotations

import pytest

from minilab.facts.cost import all_reduce_seconds, transfer_seconds
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_link


def test_transfer_pays_latency_descriptors_and_bytes() -> None:
    """Simulators that charge only bytes / bandwidth can't show why scattered KV is slow."""
    link = get_link("infiniband-400")
    assert transfer_seconds(5e9, link) == pytest.approx(0.1 + 5e-6)
    scattered = transfer_seconds(5e9, link, descriptors=100_000, alpha=2e-6)
    assert scattered == pytest.approx(0.3 + 5e-6)
    assert transfer_seconds(0, link) == 0.0
    with pytest.raises(InputError, match="give 0 or more"):
        transfer_seconds(-1, link)


def test_all_reduce_adds_latency_and_bytes() -> None:
    link = get_link("nvlink-4")
    assert all_reduce_seconds(1e6, 1, link) == 0.0
    assert all_reduce_seconds(67.5e9, 8, link) == pytest.approx(1.0 + 20e-6)
    assert all_reduce_seconds(0, 2, link, t_ar=3e-6) == 3e-6
    with pytest.raises(InputError, match="tp is 0"):
        all_reduce_seconds(1, 0, link)
