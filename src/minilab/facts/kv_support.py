"""Which engine's attention backend takes which KV dtype on which GPU: a table with its sources."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from minilab.facts.hardware import GPU


class Support(NamedTuple):
    """One backend: capabilities times ten, from ``low`` to ``high``, and the KV dtypes it takes."""

    engine: str
    backend: str
    low: int
    high: int
    kv: tuple[str, ...]
    fp8: bool
    note: str
    source: str


@cache
def _table() -> dict[str, Any]:
    text = resources.files("minilab.facts").joinpath("kv_support.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def read_on() -> str:
    """The date on which the sources were read."""
    return str(_table()["read"])


def kv_support(gpu: GPU | None = None) -> list[Support]:
    """All rows, or those of one NVIDIA GPU. A GPU without a CUDA capability has none here."""
    sources = _table()["sources"]
    rows = [
        Support(**{**row, "kv": tuple(row["kv"]), "source": sources[row["source"]]})
        for row in _table()["rows"]
    ]
    return [row for row in rows if gpu is None or row.low <= gpu.sm <= row.high]
