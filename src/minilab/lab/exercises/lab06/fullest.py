"""Exercise 6.D2: how full the fullest GPU is when replicas share their expert's load."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.core.expert_balance import ExpertPlan
from minilab.lab.exercise import Case, Exercise, Misconception


def fullest(slots: Sequence[int], gpus: int, loads: Sequence[float]) -> float:
    """Load of the fullest GPU over the mean GPU's.

    ``slots``: the expert in each physical slot, GPU after GPU, as many slots on each. Replicas of
    an expert share its load evenly.
    """
    return ExpertPlan(tuple(slots), gpus).imbalance(loads)


def _per_gpu(slots: Sequence[int], gpus: int, loads: Sequence[float], shared: bool) -> list[float]:
    size = len(slots) // gpus
    parts = [loads[e] / (slots.count(e) if shared else 1) for e in slots]
    return [sum(parts[g * size : (g + 1) * size]) for g in range(gpus)]


def _over_mean(found: Sequence[float]) -> float:
    return max(found) * len(found) / sum(found)


def _by_rows(slots: Sequence[int], gpus: int, loads: Sequence[float]) -> float:
    parts = [loads[e] / slots.count(e) for e in slots]
    return _over_mean([sum(parts[g::gpus]) for g in range(gpus)])


def _hottest(slots: Sequence[int], gpus: int, loads: Sequence[float]) -> float:
    return max(loads) * len(loads) / sum(loads)


def _to_least(slots: Sequence[int], gpus: int, loads: Sequence[float]) -> float:
    found = _per_gpu(slots, gpus, loads, shared=True)
    return max(found) / min(found)


def _draw(rng: random.Random) -> Case:
    gpus, experts = rng.choice([2, 4]), rng.choice([6, 8])
    slots = list(range(experts)) + [rng.randrange(experts) for _ in range(gpus)]
    slots += [rng.randrange(experts) for _ in range(-len(slots) % gpus)]
    rng.shuffle(slots)
    return Case((slots, gpus, [rng.randint(1, 60) for _ in range(experts)]))


FULLEST = Exercise(
    "6.D2",
    "A plan on other traffic",
    fullest,
    cases=(
        Case(([0, 1, 2, 3, 0, 4], 2, [60, 20, 10, 20, 30]), name="expert 0 twice"),
        Case(([0, 0, 1, 0, 2, 3], 3, [90, 10, 10, 20]), name="expert 0 three times"),
        Case(([0, 0, 1, 0, 2, 3], 3, [10, 40, 30, 20]), name="the same plan, other traffic"),
        Case(([3, 1, 2, 0], 2, [10, 40, 30, 20]), name="no replica"),
    ),
    misconceptions=(
        Misconception(
            "each replica carries all",
            lambda s, g, w: _over_mean(_per_gpu(s, g, w, shared=False)),
            "replicas share an expert's load; each carries its part",
        ),
        Misconception(
            "each replica carries all, over the true mean",
            lambda s, g, w: max(_per_gpu(s, g, w, shared=False)) * g / sum(w),
            "replicas share an expert's load: here each carries all of it, so the GPUs together "
            "carry more than there is",
        ),
        Misconception(
            "the hottest expert",
            _hottest,
            "this is the fullest expert over the mean expert; a GPU carries several",
        ),
        Misconception(
            "fullest over emptiest",
            _to_least,
            "the layer waits for the fullest GPU; a balanced one would take the mean's time",
        ),
        Misconception(
            "dealt in turn",
            _by_rows,
            "slots are listed GPU after GPU, not one for each in turn",
        ),
        Misconception(
            "the other way round",
            lambda s, g, w: 1 / fullest(s, g, w),
            "this is mean over fullest, a share of time used; asked is how much longer it takes",
        ),
    ),
    hints=(
        "How many slots does each expert have? That divides its load.",
        "Add up the slots of each GPU; there are as many on each.",
        "Largest sum over the mean sum.",
    ),
    draw=_draw,
    unit="times",
    core=False,
)
