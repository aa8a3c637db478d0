"""Where experts go: replicas for hot experts, and a packing of replicas onto GPUs (EPLB).

The algorithm is DeepSeek's expert-parallel load balancer (deepseek-ai/EPLB), written anew:

1. **Replicate**: give each redundant slot to the expert whose replicas carry most.
2. **Pack**: heaviest first, each onto the lightest GPU that has a slot free.

The hierarchical form first packs whole expert groups onto nodes, so that a token that may use few
groups crosses few machines, and does 1 and 2 inside each node. The global form ignores nodes.
Packing is greedy: nothing here is optimal, and a plan can be worse than none (see ``imbalance``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpertPlan:
    """One layer's placement.

    ``slots[p]`` is the logical expert in physical slot p; GPU g has the slots from
    ``g * slots_per_gpu`` on. ``gpus`` is their number.
    """

    slots: tuple[int, ...]
    gpus: int

    @property
    def slots_per_gpu(self) -> int:
        """Physical experts on each GPU."""
        return len(self.slots) // self.gpus

    def replicas(self, experts: int) -> list[int]:
        """How many slots each of ``experts`` logical experts has."""
        counts = [0] * experts
        for expert in self.slots:
            counts[expert] += 1
        return counts

    def gpu_loads(self, loads: Sequence[float]) -> list[float]:
        """Load on each GPU if an expert's load is spread evenly over its replicas."""
        counts = self.replicas(len(loads))
        size = self.slots_per_gpu
        return [
            sum(loads[expert] / counts[expert] for expert in self.slots[g * size : (g + 1) * size])
            for g in range(self.gpus)
        ]

    def imbalance(self, loads: Sequence[float]) -> float:
        """Load of the fullest GPU over the mean (1: even). 1.0 where nothing is loaded."""
        on = self.gpu_loads(loads)
        total = sum(on)
        return max(on) * self.gpus / total if total else 1.0


def contiguous(experts: int, gpus: int) -> ExpertPlan:
    """Expert e on GPU ``e // (experts / gpus)``: what an engine does without a balancer.

    Raises:
        ValueError: experts that do not divide evenly.
    """
    if gpus < 1 or experts < 1 or experts % gpus:
        raise ValueError(
            f"{experts} experts on {gpus} GPUs do not divide; use a divisor of {experts}, "
            "or redundant experts (balance)"
        )
    return ExpertPlan(tuple(range(experts)), gpus)


def balance(
    loads: Sequence[float], slots: int, gpus: int, groups: int = 1, nodes: int = 1
) -> ExpertPlan:
    """EPLB for one layer: hierarchical where ``groups`` divide by ``nodes``, else global.

    Args:
        loads: tokens (or any weight, 0 or more) per logical expert.
        slots: physical experts, at least as many as logical ones.
        gpus: over all nodes.
        groups: expert groups of the router (DeepSeek-V3: 8).
        nodes: machines.

    Raises:
        ValueError: numbers that do not divide, fewer slots than experts, a negative load.
    """
    _check(loads, slots, gpus, groups, nodes)
    if groups % nodes:
        groups = nodes = 1
    width = len(loads) // groups
    weights = [sum(loads[g * width : (g + 1) * width]) for g in range(groups)]
    placed: list[int] = []
    for chosen in pack(weights, nodes):
        members = [g * width + i for g in chosen for i in range(width)]
        replicas = replicate([loads[e] for e in members], slots // nodes)
        counts = [replicas.count(e) for e in range(len(members))]
        each = [loads[members[e]] / counts[e] for e in replicas]
        for gpu in pack(each, gpus // nodes):
            placed += [members[replicas[slot]] for slot in gpu]
    return ExpertPlan(tuple(placed), gpus)


def balance_layers(
    loads: Sequence[Sequence[float]], slots: int, gpus: int, groups: int = 1, nodes: int = 1
) -> list[ExpertPlan]:
    """``balance`` for each layer of ``loads`` ([layers][experts])."""
    return [balance(layer, slots, gpus, groups, nodes) for layer in loads]


def replicate(loads: Sequence[float], slots: int) -> list[int]:
    """[slots] logical experts: each once, then each further slot to the fullest replica's expert.

    Ties go to the expert with the lowest number.
    """
    replicas = list(range(len(loads)))
    counts = [1] * len(loads)
    for _ in range(slots - len(loads)):
        fullest = max(range(len(loads)), key=lambda e: loads[e] / counts[e])
        replicas.append(fullest)
        counts[fullest] += 1
    return replicas


def pack(weights: Sequence[float], packs: int) -> list[list[int]]:
    """[packs][len(weights) / packs] item numbers: heaviest first onto the lightest pack with room.

    Ties go to the item and the pack with the lowest number. A single item per pack stays in order.
    """
    room = len(weights) // packs
    if room == 1:
        return [[item] for item in range(packs)]
    found: list[list[int]] = [[] for _ in range(packs)]
    total = [0.0] * packs
    for item in sorted(range(len(weights)), key=lambda i: -weights[i]):
        free = (p for p in range(packs) if len(found[p]) < room)
        lightest = min(free, key=total.__getitem__)
        found[lightest].append(item)
        total[lightest] += weights[item]
    return found


def greedy_bound(loads: Sequence[float], plan: ExpertPlan) -> float:
    """Most that a GPU of a global plan may carry: the mean load plus the heaviest replica.

    The bound of list scheduling (Graham 1966): when the fullest GPU got its last replica it was the
    lightest with a slot free. Slots run out here, which that proof does not know; the property
    tests look for a counterexample and have found none. Not for hierarchical plans, whose nodes
    may differ.
    """
    counts = plan.replicas(len(loads))
    heaviest = max(loads[e] / counts[e] for e in plan.slots)
    return sum(loads) / plan.gpus + heaviest


def _check(loads: Sequence[float], slots: int, gpus: int, groups: int, nodes: int) -> None:
    experts = len(loads)
    if not experts or min(loads) < 0:
        raise ValueError("loads: give one number of 0 or more per expert, at least one expert")
    for name, value in (("slots", slots), ("gpus", gpus), ("groups", groups), ("nodes", nodes)):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if slots < experts:
        raise ValueError(f"{slots} slots for {experts} experts; give at least {experts}")
    for text, whole, part in (
        ("experts / groups", experts, groups),
        ("slots / gpus", slots, gpus),
        ("gpus / nodes", gpus, nodes),
    ):
        if whole % part:
            raise ValueError(f"{text}: {whole} does not divide by {part}; change one of them")
