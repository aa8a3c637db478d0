"""The models we know by name, and the front door to everything about models.

``models.json`` holds their geometry: integers from public configs, each row with its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from minilab.facts.kv_layout import DTYPE_BYTES, KV_DTYPES, KVGroup, dtype_bytes
from minilab.facts.model_spec import ModelSpec
from minilab.facts.user_input import unknown_name

__all__ = [
    "DTYPE_BYTES", "KV_DTYPES", "KVGroup", "ModelSpec", "dtype_bytes", "get_model", "models",
]  # fmt: skip


@cache
def _shipped() -> dict[str, ModelSpec]:
    text = resources.files("minilab.facts").joinpath("models.json").read_text(encoding="utf-8")
    table = json.loads(text)
    specs = {}
    for name, row in table["models"].items():
        row = {**row, "source": table["sources"].get(row["source"], row["source"])}
        row["strides"] = tuple((s, n) for s, n in row.get("strides", ()))
        specs[name] = ModelSpec(name=name, **row)
    return specs


def models() -> dict[str, ModelSpec]:
    """All models that ship with the package, by name."""
    return dict(_shipped())


_TUNED = re.compile(r"-(instruct|it|chat|base|hf|thinking)(-\d{4}|-v[0-9.]+|-hf)?$")


def _plain(name: str) -> str:
    """A name without its owner, the prefix "meta-" and what only says how it was tuned."""
    return _TUNED.sub("", name.rsplit("/", 1)[-1].lower().removeprefix("meta-"))


def get_model(name: str, config: str | Path | Mapping[str, Any] | None = None) -> ModelSpec:
    """The model called ``name``, or, given ``config`` (a file or a dict), that one so named.

    A hub id works too, and so does that of a tuned variant of the same shape ("-Instruct", "-it").
    Raises InputError for unknown names.
    """
    if isinstance(config, Mapping):
        return ModelSpec.from_config(config, name)
    if config is not None:
        return ModelSpec.from_file(config, name)
    known = models()
    wanted = name.strip().lower()
    for spec in known.values():
        if wanted in (spec.name, spec.hub.lower()):
            return spec
    for spec in known.values():
        if _plain(wanted) in (spec.name, _plain(spec.hub)):
            return spec
    raise unknown_name("model", name.rsplit("/", 1)[-1], known)
