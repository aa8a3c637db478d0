"""Pipeline stages: which layers, and so which weights and KV, lie on which GPU.

Layers are split as vLLM splits them (``get_pp_indices``): evenly, the remainder to the stages
before the last, for the last one also holds the output head. The first holds the embedding table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from minilab.facts.errors import InputError
from minilab.facts.kv_layout import dtype_bytes
from minilab.facts.models import ModelSpec


def stage_layers(layers: int, pp: int, given: Sequence[int] | None = None) -> tuple[int, ...]:
    """Layers of each of ``pp`` stages; ``given`` is the user's own split. Raises InputError."""
    if given is not None:
        if len(given) != pp or sum(given) != layers or min(given) < 1:
            raise InputError(
                f"stages of {', '.join(map(str, given))} layers; give pp={pp} whole numbers that "
                f"add up to the model's {layers} layers"
            )
        return tuple(given)
    if not 1 <= pp <= layers:
        raise InputError(f"pp is {pp}; give 1 to {layers}, the model's layers")
    split = [layers // pp] * pp
    for at in range(layers % pp):
        split[max(0, pp - 2 - at)] += 1
    return tuple(split)


def stage_models(model: ModelSpec, split: Sequence[int]) -> list[ModelSpec]:
    """The model cut into stages: its layers of each kind spread evenly over its depth.

    Only what depends on layers is cut. Dense feed-forward layers come first, as in every MoE model
    that has some.
    """
    if len(split) == 1:
        return [model]
    kinds = _pattern(model)
    dense = model.layers - model.moe_layers
    parts, start = [], 0
    for count in split:
        span = range(start, start + count)
        inside = [kinds[at] for at in span]
        names = {name: inside.count(name) for name in ("full", "window", "linear")}
        parts.append(
            replace(
                model,
                layers=count,
                full_layers=names["full"],
                window_layers=names["window"],
                linear_layers=names["linear"],
                moe_layers=sum(at >= dense for at in span) if model.moe_layers else 0,
                index_layers=_share(model.index_layers, model.layers, span),
                strides=tuple((s, _share(n, model.layers, span)) for s, n in model.strides),
            )
        )
        start += count
    return parts


def stage_weights(
    model: ModelSpec, stages: Sequence[ModelSpec], dtype: str, tp: int, dp: int = 1
) -> list[float]:
    """Bytes of weights on one GPU of each stage.

    ``dp`` attention replicas among the ``tp`` GPUs: attention is split over ``tp / dp`` only. Norms
    and the few matrices that tensor parallelism copies (a router, MLA's down-projections) are
    counted as if they were split.
    """
    dense, expert = model.weight_dtypes(dtype)
    plain = max(2.0, dtype_bytes(dense))
    sizes = []
    for at, stage in enumerate(stages):
        attention = stage.attention_params * dtype_bytes(dense) * dp
        other = (stage.body_params - stage.attention_params) * dtype_bytes(dense)
        size = attention + other + stage.routed_params * dtype_bytes(expert)
        first, last = at == 0, at == len(stages) - 1
        table = model.hidden * (model.vocab + model.positions)
        if first and last:
            size += (model.embedding_params + model.head_params) * plain
        elif first or last:
            size += (table if first else model.head_params) * plain
        size += stage.vector_params * plain
        sizes.append(size / tp)
    return sizes


def _pattern(model: ModelSpec) -> list[str]:
    """A kind for each layer, the rarer kinds spread evenly, the last of each block of them full."""
    counts = {"full": model.full_layers, "linear": model.linear_layers}
    if model.strides:
        return ["window"] * model.layers
    kinds = ["window"] * model.layers
    for name, count in counts.items():
        free = [at for at, kind in enumerate(kinds) if kind == "window"]
        for nth in range(count):
            kinds[free[(nth + 1) * len(free) // count - 1]] = name
    return kinds


def _share(count: int, layers: int, span: range) -> int:
    """How many of ``count`` things spread over ``layers`` fall into ``span``."""
    return math.ceil(count * span.stop / layers) - math.ceil(count * span.start / layers)
