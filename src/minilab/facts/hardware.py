"""GPU and Link: what a data sheet says, each number with its source.

Peak rates are dense (never the "with sparsity" figure), bandwidths are bytes per second, a link's
bandwidth is one direction per GPU. What a kernel reaches of a peak is not here: that is an
efficiency, and ``facts.cost`` holds it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json, tidy_name, unknown_name

_FIELDS = (
    "name", "label", "mem_bytes", "mem_bw", "flops", "sm", "links", "price_per_hour", "source",
)  # fmt: skip
FLOPS_DTYPES = ("bf16", "fp16", "fp8", "int8", "fp4")


@dataclass(frozen=True)
class Link:
    """A wire: ``bandwidth`` bytes/s in one direction, ``latency`` seconds for a first byte."""

    name: str
    bandwidth: float
    latency: float
    source: dict[str, str] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True)
class GPU:
    """One GPU. ``flops`` is dense operations/s by dtype; ``links`` names its wires, fastest first.

    ``price_per_hour`` is US dollars for one GPU, an example to be replaced (``with_price``);
    ``None`` where no list price was found. ``sm`` is the CUDA capability times ten, 0 elsewhere.
    ``source`` maps a field (``flops.bf16`` for a rate) to where its number was read.
    ``mem_bytes`` is what the driver reports where we found that, else the nominal size.
    """

    name: str
    label: str
    mem_bytes: int
    mem_bw: float
    flops: dict[str, float] = field(hash=False)
    sm: int = 0
    links: tuple[str, ...] = ("pcie-4",)
    price_per_hour: float | None = None
    source: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    def with_price(self, price_per_hour: float) -> GPU:
        """The same GPU at another price (US dollars per GPU and hour)."""
        checked = _number("with_price", "price_per_hour", price_per_hour)
        source = {**self.source, "price_per_hour": "set by the user"}
        return replace(self, price_per_hour=checked, source=source)

    def flops_at(self, dtype: str) -> float:
        """Peak dense operations/s when the matrices are stored as ``dtype``.

        A format the tensor cores lack (fp8 on an A100, int4 anywhere) is widened in registers and
        computed as bf16; a GPU without bf16 (T4) computes in fp16. Where there are fp4 cores, MXFP4
        weights meet fp8 activations and run at that rate.
        """
        if dtype == "mxfp4" and "fp4" in self.flops:
            dtype = "fp8"
        for candidate in (dtype, "bf16", "fp16"):
            if candidate in self.flops:
                return self.flops[candidate]
        return max(self.flops.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, sources included."""
        return {
            "name": self.name,
            "label": self.label,
            "mem_bytes": self.mem_bytes,
            "mem_bw": self.mem_bw,
            "flops": dict(self.flops),
            "sm": self.sm,
            "links": list(self.links),
            "price_per_hour": self.price_per_hour,
            "source": dict(self.source),
        }


def gpus() -> dict[str, GPU]:
    """All GPUs that ship with the package, by name."""
    return dict(_shipped()[0])


def links() -> dict[str, Link]:
    """All links that ship with the package, by name."""
    return dict(_shipped()[1])


def get_gpu(name: str, file: str | Path | None = None) -> GPU:
    """The GPU called ``name``: from ``file`` if it is there, else from the package.

    ``file`` is JSON: one object, or ``{"gpus": [...]}``, with ``name``, ``mem_bytes``, ``mem_bw``
    and ``flops`` and, as you like, ``label``, ``sm``, ``links``, ``price_per_hour``, ``source``.
    Raises InputError for unknown names and for numbers that are off by a unit.
    """
    known = gpus()
    if file is not None:
        known.update(read_gpu_file(file))
    wanted = tidy_name(name)
    if wanted not in known:
        raise unknown_name("GPU", name, known)
    return known[wanted]


def get_link(name: str) -> Link:
    """The link called ``name``. Raises InputError for unknown names."""
    known = links()
    wanted = tidy_name(name)
    if wanted not in known:
        raise unknown_name("link", name, known)
    return known[wanted]


def read_gpu_file(path: str | Path) -> dict[str, GPU]:
    """The GPUs of a user's own JSON file, checked. Raises InputError."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a JSON object with name, mem_bytes, mem_bw and flops")
    rows = data.get("gpus", [data])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: 'gpus' must be a list of objects, one per GPU")
    found = (_read_gpu(row, f"{path}:{at}", {}) for at, row in enumerate(rows, 1))
    return {gpu.name: gpu for gpu in found}


# A number outside its range is nearly always one in another unit, so the message proposes one.
_RANGES: dict[str, tuple[float, float, str, tuple[tuple[str, float], ...]]] = {
    "mem_bytes": (5e8, 5e12, "bytes", (("GB", 1e9), ("MiB", 2.0**20))),
    "mem_bw": (5e9, 1e14, "bytes per second", (("GB/s", 1e9), ("TB/s", 1e12))),
    "flops": (1e11, 1e17, "operations per second", (("TFLOPS", 1e12), ("PFLOPS", 1e15))),
    "price_per_hour": (0.0, 1e3, "dollars per GPU and hour", (("cents", 0.01),)),
    "sm": (0, 300, "CUDA capability times ten", (("major.minor", 10.0),)),
    "bandwidth": (1e7, 1e13, "bytes per second", (("GB/s", 1e9),)),
    "latency": (0.0, 0.1, "seconds", (("microseconds", 1e-6),)),
}


def _number(where: str, name: str, value: Any) -> float:
    kind = name.split(".")[0]
    low, high, unit, others = _RANGES[kind]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{where}: {name} is {value!r}; give a number of {unit}")
    fractional_sm = kind == "sm" and value != int(value)
    if low <= value <= high and not fractional_sm:
        return float(value)
    for other, factor in others:
        if low <= value * factor <= high:
            meant = f"; did you mean {_short(value * factor)} ({_short(value)} {other})?"
            break
    else:
        meant = ""
    limits = f"{_short(low)} to {_short(high)}"
    raise InputError(f"{where}: {name} is {value}; expected {limits} {unit}{meant}")


def _short(value: float) -> str:
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e")


def _read_gpu(row: Mapping[str, Any], where: str, sources: Mapping[str, str]) -> GPU:
    for key in row:
        if key not in _FIELDS:
            raise InputError(f"{where}: {unknown_name('field', key, _FIELDS)}")
    for key in ("name", "mem_bytes", "mem_bw", "flops"):
        if key not in row:
            raise InputError(f"{where}: no {key!r}; a GPU needs name, mem_bytes, mem_bw and flops")
    note = row.get("source", f"user file {where}")
    source: dict[str, str] = {}

    def number(name: str, value: Any) -> float:
        if isinstance(value, list) and len(value) == 2:  # [number, where it was read]
            value, origin = value
            source[name] = sources.get(origin, origin)
        else:
            source[name] = note
        return _number(where, name, value)

    flops = row["flops"]
    if not isinstance(flops, dict) or not flops:
        raise InputError(f'{where}: flops must be an object such as {{"bf16": 9.89e14}}')
    for dtype in flops:
        if dtype not in FLOPS_DTYPES:
            raise InputError(f"{where}: {unknown_name('dtype', dtype, FLOPS_DTYPES)}")
    names = row.get("links", ["pcie-4"])
    if isinstance(names, str) or not names:
        raise InputError(f'{where}: links must be a list of link names, such as ["pcie-4"]')
    if not sources:  # the shipped file is read before there are links to look up
        for wire in names:
            if wire not in links():
                raise InputError(f"{where}: {unknown_name('link', str(wire), links())}")
    name = tidy_name(str(row["name"]))
    price = row.get("price_per_hour")
    return GPU(
        name=name,
        label=str(row.get("label", row["name"])),
        mem_bytes=int(number("mem_bytes", row["mem_bytes"])),
        mem_bw=number("mem_bw", row["mem_bw"]),
        flops={dtype: number(f"flops.{dtype}", rate) for dtype, rate in flops.items()},
        sm=int(number("sm", row.get("sm", 0))),
        links=tuple(names),
        price_per_hour=None if price is None else number("price_per_hour", price),
        source=source,
    )


@cache
def _shipped() -> tuple[dict[str, GPU], dict[str, Link]]:
    text = resources.files("minilab.facts").joinpath("hardware.json").read_text(encoding="utf-8")
    data = json.loads(text)
    sources = data["sources"]
    wires = {}
    for name, row in data["links"].items():
        origin = {key: sources.get(row[key][1], row[key][1]) for key in ("bandwidth", "latency")}
        bandwidth = _number(name, "bandwidth", row["bandwidth"][0])
        wires[name] = Link(name, bandwidth, _number(name, "latency", row["latency"][0]), origin)
    cards = {
        name: _read_gpu({"name": name, **row}, "hardware.json", sources)
        for name, row in data["gpus"].items()
    }
    return cards, wires
