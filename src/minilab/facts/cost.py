"""The cost model's front door: all its names, and reading one from a file (``--cost FILE``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minilab.facts.cost_constants import FUSED_ALL_REDUCE, RANGES, Constants
from minilab.facts.cost_terms import Cost, LinearCost, StepShape, Term, window_context
from minilab.facts.cost_transfer import DESCRIPTOR_SECONDS, all_reduce_seconds, transfer_seconds
from minilab.facts.cost_wfks import WfksCost
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.facts.step_cost import StepCost
from minilab.facts.user_input import read_json, unknown_name

__all__ = [
    "DESCRIPTOR_SECONDS", "FUSED_ALL_REDUCE", "RANGES", "Constants", "Cost", "LinearCost",
    "StepCost", "StepShape", "Term", "WfksCost", "all_reduce_seconds", "cost_from_dict",
    "load_cost", "transfer_seconds", "window_context",
]  # fmt: skip

_WFKS = ("w", "f", "k", "s", "q", "t_req")
ABOUT = "about"
"""Key under which a file says where its numbers come from; it changes no cost."""
_STEP = ("model", "gpu", "tp", "weight_dtype", "kv_dtype", "link", "constants",
         "model_config", "gpu_file")  # fmt: skip


def load_cost(path: str | Path) -> StepCost | WfksCost:
    """A cost model from a JSON file, in one of two forms. Raises InputError, in one line.

    ``{"w": ..., "f": ..., "k": ..., "s": ...}`` (seconds; optional ``q``, ``t_req`` and, read by
    nobody here, ``about``), or
    ``{"model": ..., "gpu": ...}`` with, as you like, ``tp``, ``weight_dtype``, ``kv_dtype``,
    ``link``, ``constants`` (some or all), ``model_config`` and ``gpu_file`` (your own files).
    """
    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a JSON object with w, f, k, s or with model and gpu")
    return cost_from_dict(data, str(path))


def cost_from_dict(data: Mapping[str, Any], where: str = "cost") -> StepCost | WfksCost:
    """The cost model that ``data`` describes (see ``load_cost``). Raises InputError."""
    data = {key: value for key, value in data.items() if key != ABOUT}
    allowed = _STEP if "model" in data or "gpu" in data else _WFKS
    for key in data:
        if key not in allowed:
            raise InputError(f"{where}: {unknown_name('key', key, allowed)}")
    required = ("model", "gpu") if allowed is _STEP else ("w", "f", "k", "s")
    for key in required:
        if key not in data:
            raise InputError(f"{where}: no {key!r}; give {', '.join(required)}")
    try:
        return WfksCost(**data) if allowed is _WFKS else _step_cost(data, where)
    except InputError as error:
        known = str(error).startswith(where)
        raise error if known else InputError(f"{where}: {error}") from None


def _step_cost(data: Mapping[str, Any], where: str) -> StepCost:
    for key in ("model", "gpu", "weight_dtype", "kv_dtype", "link", "model_config", "gpu_file"):
        if key in data and not isinstance(data[key], str):
            raise InputError(f"{where}: {key} is {data[key]!r}; give a string")
    tp = data.get("tp", 1)
    if isinstance(tp, bool) or not isinstance(tp, int):
        raise InputError(f"{where}: tp is {tp!r}; give a whole number of GPUs, 1 or more")
    values = data.get("constants", {})
    if not isinstance(values, dict):
        raise InputError(
            f'{where}: constants is {values!r}; give an object such as {{"e_mem": 0.9}}'
        )
    gpu = get_gpu(data["gpu"], data.get("gpu_file"))
    constants = Constants.for_gpu(gpu)
    if values:
        constants = constants.with_values(values, where)
    return StepCost(
        get_model(data["model"], data.get("model_config")),
        gpu,
        tp,
        data.get("weight_dtype", "bf16"),
        data.get("kv_dtype", "bf16"),
        constants,
        data.get("link"),
    )
