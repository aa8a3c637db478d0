"""Constants: the few numbers between a data sheet and a clock.

A step's cost is bytes and FLOPs over a peak times one efficiency, plus a few latencies; these are
the efficiencies and latencies. They are fitted per GPU family and engine, never per row: fewer
constants extrapolate better to models and cards nobody has measured yet.

The fitted ones ship as data (``constants.json``): values, meaning, range, on what they were fitted,
and how far they were off where they had not been fitted.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, get_link
from minilab.facts.user_input import unknown_name


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
    """Seconds of launch and small kernels per layer and step; see ``moe_launches``."""
    t_seq: float = 14e-6
    """Seconds per sequence and step: sampling, block tables, the host's share."""
    t_req: float = 20e-3
    """Seconds per request outside any step: HTTP, tokeniser, first schedule."""
    t_ar: float = 20e-6
    """Seconds of latency per all-reduce (two a layer); see FUSED_ALL_REDUCE."""
    e_link: float = 0.15
    """Share of the link's one-way bandwidth that an all-reduce in the engine reaches."""
    moe_launches: float = 1.0
    """How often a MoE layer pays ``t_layer`` once more: 0 where experts are one fused kernel."""
    provenance: str = "prior, not fitted"

    @classmethod
    def for_gpu(cls, gpu: GPU, fused_all_reduce: bool = False) -> Constants:
        """Defaults for ``gpu``: fitted on measurements of it or of its family, or a stated prior.

        All cards nobody has fitted get one prior, with the link share of PCIe where that is the
        link. ``provenance`` says which it was, and how far off it was where it was not fitted.
        """
        entry = fit_for(gpu)
        found = cls() if entry is None else cls(**entry["values"], provenance=_provenance(entry))
        if entry is None and get_link(gpu.links[0]).name.startswith("pcie"):
            found = replace(found, e_link=_PCIE_SHARE)
        return replace(found, t_ar=FUSED_ALL_REDUCE) if fused_all_reduce else found

    def checked(self, where: str) -> Constants:
        """Itself, or InputError when a value lies outside its plausible range (``RANGES``)."""
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            unit = _shipped()["constants"][name]["unit"]
            number = not isinstance(value, bool) and isinstance(value, (int, float))
            if not number or not math.isfinite(value) or not low <= value <= high:
                meant = "; did you mean milli- or microseconds?" if unit == "seconds" else ""
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


@cache
def _shipped() -> dict[str, Any]:
    text = resources.files("minilab.facts").joinpath("constants.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def fit_for(gpu: GPU) -> dict[str, Any] | None:
    """The fit that holds for ``gpu`` as ``constants.json`` has it; None where there is none.

    A card's own fit goes before that of its family. Keys: name, values, fitted, on, source, models,
    and error (held-out measured / predicted; see ``facts.error_band``).
    """
    fits = _shipped()["fits"]
    for name, entry in fits.items():
        if gpu.name in entry.get("gpus", ()):
            return {"name": name, **entry}
    for name, entry in fits.items():
        if gpu.sm in entry.get("sm", ()):
            return {"name": name, **entry}
    return None


def _provenance(entry: dict[str, Any]) -> str:
    error = entry["error"]
    parts = [f"{name.upper()} {e['median']:.1%} / {e['p90']:.1%}" for name, e in error.items()]
    return f"fitted on {entry['on']}; {entry['error_of']}: {', '.join(parts)}"


FUSED_ALL_REDUCE: float = _shipped()["fused_all_reduce"]
"""Seconds per all-reduce when the engine fuses it with the norm that follows."""

RANGES: dict[str, tuple[float, float]] = {
    name: (row["range"][0], row["range"][1]) for name, row in _shipped()["constants"].items()
}
"""The plausible range of each constant: wider than any fit, narrow enough to catch a wrong unit."""

_PCIE_SHARE: float = _shipped()["pcie_share"]
