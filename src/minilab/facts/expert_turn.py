"""The batch from which an attention rank per GPU, with whole experts, beats slices."""

from __future__ import annotations

from minilab.facts.all_to_all import AllToAll, Fabric
from minilab.facts.cost_terms import StepShape
from minilab.facts.errors import InputError
from minilab.facts.expert_cost import ExpertCost
from minilab.facts.expert_layout import ExpertLayout
from minilab.facts.expert_work import ExpertWork
from minilab.facts.hardware import GPU
from minilab.facts.models import ModelSpec
from minilab.facts.step_cost import StepCost

MOST = 4096
"""Sequences beyond which nobody looks."""


def ranks_ahead_from(
    model: ModelSpec, gpu: GPU, gpus: int, weight_dtype: str = "native", context: int = 2000
) -> int | None:
    """The batch, a multiple of ``gpus``, at which a decode step with ranks becomes shorter.

    Found by doubling and bisecting: where the order changed more than once, one of the changes.

    On one machine of ``gpus`` GPUs, experts in even use. None if there is none up to MOST, for one
    GPU, for a dense model, and where the experts do not divide.
    """
    if gpus == 1:
        return None
    try:
        slices, ranks = (
            _cost(model, gpu, layout, weight_dtype).linear()
            for layout in (ExpertLayout(gpus, 1, False), ExpertLayout(1, gpus))
        )
    except InputError:
        return None

    def ahead(each: int) -> bool:
        shapes = [StepShape(n, n, n * context, 0) for n in (each, each * gpus)]
        return ranks.seconds(shapes[0]) < slices.seconds(shapes[1])

    low, high = 0, 1
    while not ahead(high):
        low, high = high, 2 * high
        if high * gpus > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ahead(middle) else (middle, high)
    return high * gpus


def _cost(model: ModelSpec, gpu: GPU, layout: ExpertLayout, weight_dtype: str) -> ExpertCost:
    wires = AllToAll(layout.gpus, model.hidden, max(1, model.top_k), Fabric.of(gpu))
    work = ExpertWork(model, gpu, layout, weight_dtype, exchange=wires)
    return ExpertCost(StepCost(model, gpu, layout.tp, weight_dtype), work)
