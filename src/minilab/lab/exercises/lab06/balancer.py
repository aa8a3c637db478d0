"""Exercise 6.3: place experts on GPUs, heaviest first onto the lightest GPU with a slot free."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.core.expert_balance import pack
from minilab.lab.exercise import Case, Exercise, Misconception


def place(loads: Sequence[float], gpus: int) -> list[int]:
    """The GPU of each expert; every GPU gets ``len(loads) / gpus`` of them.

    Heaviest expert first, onto the lightest GPU that has a slot free. Ties: the expert, and the
    GPU, with the lowest number.
    """
    where = [0] * len(loads)
    for gpu, members in enumerate(pack(loads, gpus)):
        for expert in members:
            where[expert] = gpu
    return where


def _greedy(
    loads: Sequence[float],
    gpus: int,
    *,
    heaviest_first: bool = True,
    in_order: bool = False,
    limited: bool = True,
    by_count: bool = False,
) -> list[int]:
    size = len(loads) // gpus
    order = list(range(len(loads)))
    if not in_order:
        order.sort(key=lambda e: -loads[e] if heaviest_first else loads[e])
    where, held, total = [0] * len(loads), [0] * gpus, [0.0] * gpus
    for expert in order:
        free = [g for g in range(gpus) if held[g] < size or not limited]
        gpu = min(free, key=(held if by_count else total).__getitem__)
        where[expert] = gpu
        held[gpu] += 1
        total[gpu] += loads[expert]
    return where


def _draw(rng: random.Random) -> Case:
    gpus, size = rng.choice([2, 3, 4]), rng.choice([2, 3, 4])
    return Case(([rng.randint(1, 99) for _ in range(gpus * size)], gpus))


BALANCER = Exercise(
    "6.3",
    "A balancer",
    place,
    cases=(
        Case(([90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], 4), name="12 experts, 4 GPUs"),
        Case(([5, 5, 2, 4, 4, 4], 2), name="even as it stands"),
        Case(([100, 1, 1, 1, 1, 1], 2), name="one hot expert"),
        Case(([7, 9, 7, 8, 9, 8, 3, 2], 4), name="with ties"),
    ),
    misconceptions=(
        Misconception(
            "in the order of their numbers",
            lambda loads, gpus: _greedy(loads, gpus, in_order=True),
            "experts are taken in order here; a heavy one that comes late finds no light GPU left",
        ),
        Misconception(
            "lightest first",
            lambda loads, gpus: _greedy(loads, gpus, heaviest_first=False),
            "the light ones go first here, and the heavy ones land wherever room is left",
        ),
        Misconception(
            "no limit of slots",
            lambda loads, gpus: _greedy(loads, gpus, limited=False),
            "a GPU has memory for its share of the experts, not for more",
        ),
        Misconception(
            "dealt like cards",
            lambda loads, gpus: _greedy(loads, gpus, by_count=True),
            "this deals experts out in turn: it looks at how many a GPU has, not at their load",
        ),
        Misconception(
            "one after the other",
            lambda loads, gpus: [e % gpus for e in range(len(loads))],
            "this gives each GPU its turn by the expert's number; loads play no part in it",
        ),
        Misconception(
            "left alone",
            lambda loads, gpus: [e * gpus // len(loads) for e in range(len(loads))],
            "this is the untouched map: experts in order, whatever their load",
        ),
    ),
    hints=(
        "Sort the experts by load, heaviest first; keep each GPU's load and its free slots.",
        "For each expert, among the GPUs with a slot free, take the one with the least load.",
        "Python's sort is stable and `min` takes the first of equals: that settles the ties.",
    ),
    draw=_draw,
)
