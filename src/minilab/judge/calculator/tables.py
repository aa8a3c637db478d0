"""tables: what the calculator knows of models and GPUs, generated from ``facts``."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from minilab.facts.capacity_flags import VERSIONS
from minilab.facts.capacity_limits import uniform
from minilab.facts.hardware import gpus
from minilab.facts.kv_layout import DTYPE_BYTES
from minilab.facts.models import ModelSpec, models

TENSOR_PARALLEL = (1, 2, 4, 8)
_WIDTHS = ("hidden", "vocab", "ffn", "top_k", "expert_ffn", "shared_ffn", "window", "max_len")


@cache
def tables() -> dict[str, Any]:
    """Plain JSON values: models, gpus, dtype_bytes, versions."""
    return {
        "models": {name: _model(spec) for name, spec in models().items() if spec.kv_groups},
        "gpus": {
            name: {"label": gpu.label, "mem_bytes": gpu.mem_bytes} for name, gpu in gpus().items()
        },
        "dtype_bytes": dict(DTYPE_BYTES),
        "versions": dict(VERSIONS),
    }


@cache
def parameters() -> list[dict[str, Any]]:
    """Name, label, unit, range or choices, default and one line of help, in order of display."""
    place = files("minilab.judge.calculator") / "parameters.json"
    found: list[dict[str, Any]] = json.loads(place.read_text("utf-8"))
    return found


def as_json() -> str:
    """The tables as text, for the page."""
    return json.dumps(tables(), separators=(",", ":"), sort_keys=True)


def _model(spec: ModelSpec) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(spec, name) for name in _WIDTHS}
    row["groups"] = [list(group) for group in spec.kv_groups]
    row["indexer"] = spec.index_bytes_per_token
    row["state"] = {str(tp): spec.state_bytes(tp) for tp in TENSOR_PARALLEL}
    row["uniform"] = uniform(spec)
    row["tables"] = spec.embedding_params + spec.head_params + spec.vector_params
    row["matrices"], row["routed"] = spec.body_params, spec.routed_params
    row["dtype"], row["expert_dtype"] = spec.weight_dtypes("native")
    row["hub"] = spec.hub or spec.name
    return row
