"""Constants: the few numbers between a data sheet and a clock.

A step's cost is bytes and FLOPs over a peak times one efficiency, plus a few latencies; these are
the efficiencies and latencies. They are fitted per GPU family and engine, never per row: fewer
constants extrapolate better to models and cards nobody has measured yet.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, get_link
from minilab.facts.user_input import unknown_name

FUSED_ALL_REDUCE = 3e-6
"""Seconds per all-reduce when the engine fuses it with the norm that follows."""


@dataclass(frozen=True)
class Constants:
    """Efficiencies (shares of a peak) and latencies (seconds). ``provenance`` says whence."""

    e_mem: float = 0.85
    """Share of HBM bandwidth that reading weights and KV reaches."""
    e_comp: float = 0.80
    """Share of the tensor peak that dense GEMMs and prefill attention reach."""
    e_moe: float = 0.15
    """Share of the tensor peak that grouped (expert) GEMMs reach."""
    t_layer: float = 40e-6
    """Seconds of launch and small kernels per layer and step, once more on a MoE layer."""
    t_seq: float = 14e-6
    """Seconds per sequence and step: sampling, block tables, the host's share."""
    t_req: float = 20e-3
    """Seconds per request outside any step: HTTP, tokeniser, first schedule."""
    t_ar: float = 20e-6
    """Seconds of latency per all-reduce (two a layer); see FUSED_ALL_REDUCE."""
    e_link: float = 0.15
    """Share of the link's one-way bandwidth that an all-reduce in the engine reaches."""
    provenance: str = "prior, not fitted"

    @classmethod
    def for_gpu(cls, gpu: GPU, fused_all_reduce: bool = False) -> Constants:
        """Defaults for ``gpu``: a published-data fit for its family, or a stated prior.

        Hopper (sm 90) and data-centre Blackwell (sm 100, 103) come from a first fit to public
        vLLM measurements; they are provisional until the calibration is done in the open. All
        others get one prior for all cards, with the link share of PCIe where that is the link.
        """
        found = _FAMILIES.get(gpu.sm, cls())
        if gpu.sm not in _FAMILIES and get_link(gpu.links[0]).name.startswith("pcie"):
            found = replace(found, e_link=_PCIE_SHARE)
        return replace(found, t_ar=FUSED_ALL_REDUCE) if fused_all_reduce else found

    def checked(self, where: str) -> Constants:
        """Itself, or InputError when a value lies outside its plausible range (``RANGES``)."""
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            unit = "a share of the peak" if name.startswith("e_") else "seconds"
            number = not isinstance(value, bool) and isinstance(value, (int, float))
            if not number or not math.isfinite(value) or not low <= value <= high:
                meant = "" if name.startswith("e_") else "; did you mean milli- or microseconds?"
                raise InputError(
                    f"{where}: {name} is {value!r}; expected {low:g} to {high:g} ({unit}){meant}"
                )
        return self

    def with_values(self, values: dict[str, Any], where: str) -> Constants:
        """A copy with some fields replaced by a user's, checked. Raises InputError."""
        known = [f.name for f in fields(self)]
        for name in values:
            if name not in known:
                raise InputError(f"{where}: {unknown_name('constant', name, known)}")
        note = f"{', '.join(sorted(values))} from {where}; else {self.provenance}"
        return replace(self, **{"provenance": note, **values}).checked(where)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


RANGES: dict[str, tuple[float, float]] = {
    "e_mem": (0.02, 1.2),  # above 1: an L2 cache that keeps part of the weights
    "e_comp": (0.02, 1.2),
    "e_moe": (0.005, 1.2),
    "t_layer": (0.0, 5e-3),
    "t_seq": (0.0, 5e-3),
    "t_req": (0.0, 5.0),
    "t_ar": (0.0, 5e-3),
    "e_link": (0.005, 1.2),
}

_FIT = "published fit, provisional (public vLLM measurements, AIConfigurator silicon data)"
_PCIE_SHARE = 0.25  # 16 of 64 GB/s: one published run on two RTX PRO 6000 (LLMServingSim 2.0)

_HOPPER = Constants(0.95, 1.0, 0.16, 40.6e-6, 13.9e-6, 20e-3, 20e-6, 0.15, _FIT)
_BLACKWELL = Constants(0.975, 0.43, 0.13, 35.6e-6, 12.7e-6, 34e-3, 20e-6, 0.15, _FIT)
_FAMILIES = {90: _HOPPER, 100: _BLACKWELL, 103: _BLACKWELL}
