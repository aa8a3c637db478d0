"""tables: what the selector knows of models, GPUs and links, generated from ``facts``.

The page gets it as JSON, so its numbers cannot drift from the package's.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from minilab.facts.cost_constants import Constants
from minilab.facts.error_band import error_band
from minilab.facts.expert_turn import ranks_ahead_from
from minilab.facts.hardware import GPU, get_gpu, get_link, gpus, links
from minilab.facts.kv_layout import DTYPE_BYTES
from minilab.facts.models import ModelSpec, models
from minilab.judge.selector.room import SIZES

KV_DTYPES = ("bf16", "fp8")
WEIGHTS = ("native", "bf16", "fp8", "int4")
MTP = ("deepseek-v3", "deepseek-r1")
"""Models that were published with a module for multi-token prediction."""

TURN_GPU = "h200"
"""The card for which ``ranks_from`` is computed: the batch from which EP beats TP on tp GPUs."""

_INTEGERS = [
    "layers",
    "moe_layers",
    "hidden",
    "vocab",
    "ffn",
    "top_k",
    "expert_ffn",
    "shared_ffn",
    "experts",
    "expert_params",
    "head_params",
    "body_params",
    "routed_params",
    "pair_flops",
    "window",
    "window_layers",
    "max_len",
    "kv_lora",
]


@cache
def tables() -> dict[str, Any]:
    """Plain JSON values: models, gpus, links, dtype_bytes."""
    cards = gpus()
    found = models()
    return {
        "models": {name: _model(spec) for name, spec in found.items() if _servable(spec)},
        "gpus": {name: _gpu(gpu, list(found)) for name, gpu in cards.items()},
        "links": {
            name: {"bandwidth": link.bandwidth, "latency": link.latency}
            for name, link in links().items()
        },
        "dtype_bytes": dict(DTYPE_BYTES),
    }


def as_json() -> str:
    """The same as text, for the page."""
    return json.dumps(tables(), separators=(",", ":"), sort_keys=True)


def _servable(spec: ModelSpec) -> bool:
    """A model whose KV grows with the text; the closed form has no other limit on a batch."""
    return spec.kv_bytes_per_token("bf16") > 0


def _model(spec: ModelSpec) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(spec, name) for name in _INTEGERS}
    row["dtype"], row["expert_dtype"] = spec.weight_dtypes("native")
    row["kv"] = {
        dtype: {
            str(tp): [
                spec.full_kv_bytes_per_token(dtype, tp),
                spec.window_kv_bytes_per_token(dtype, tp),
            ]
            for tp in SIZES
        }
        for dtype in KV_DTYPES
    }
    row["mtp"] = spec.name.startswith(MTP)
    row["ranks_from"] = {str(tp): ranks_ahead_from(spec, get_gpu(TURN_GPU), tp) for tp in SIZES}
    row["state"] = {str(tp): spec.state_bytes(tp) for tp in SIZES}
    row["weight_bytes"] = {dtype: spec.weight_bytes(dtype) for dtype in WEIGHTS}
    return row


def _gpu(gpu: GPU, names: list[str]) -> dict[str, Any]:
    constants = Constants.for_gpu(gpu)
    bands = {}
    for name in names:
        band = error_band(gpu, name, constants)
        if band is not None:
            bands[name] = {key: list(value) for key, value in band.factors.items()}
    return {
        "label": gpu.label,
        "mem_bytes": gpu.mem_bytes,
        "mem_bw": gpu.mem_bw,
        "flops": dict(gpu.flops),
        "sm": gpu.sm,
        "link": get_link(gpu.links[0]).name,
        "price_per_hour": gpu.price_per_hour,
        "constants": {k: v for k, v in constants.to_dict().items() if k != "provenance"},
        "bands": bands,
    }
