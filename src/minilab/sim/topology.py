"""Topology: which wire KV takes between two instances, from where their GPUs sit.

Instances are placed in order on GPUs 0, 1, 2, ...; ``gpus_per_node`` of them share a machine. Two
instances of one machine talk over its inner link (NVLink, PCIe), others over the network. Each GPU
has a lane of its own unless the machine has fewer network cards than GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.hardware import Link

Port = tuple[str, int]
"""One end of a wire that transfers share: ("out", instance), ("in", instance), ("nic-out", node),
("nic-in", node)."""


class Place(NamedTuple):
    """An instance's GPUs: ``first`` to ``first + tp - 1``; ``node`` is that of the first."""

    first: int
    tp: int
    node: int


class Path(NamedTuple):
    """A way from one instance to another: the link, and each shared port with its lanes."""

    link: Link
    lanes: int
    ports: tuple[tuple[Port, int], ...]


@dataclass(frozen=True)
class Topology:
    """Machines and their wires.

    Attributes:
        gpus_per_node: GPUs in one machine.
        inside: link between GPUs of a machine.
        between: link of a network card.
        nics_per_node: network cards that a machine's GPUs share; None: one for each GPU.

    Raises:
        InputError: a count below 1.
    """

    gpus_per_node: int
    inside: Link
    between: Link
    nics_per_node: int | None = None

    def __post_init__(self) -> None:
        for name in ("gpus_per_node", "nics_per_node"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; give a whole number of at least 1")

    def place(self, tps: Sequence[int], new_node_at: int | None = None) -> list[Place]:
        """Where instances with so many GPUs each sit; ``new_node_at``: that one starts a machine.

        An instance is not torn between two machines if it fits one.
        """
        size, at, places = self.gpus_per_node, 0, []
        for index, tp in enumerate(tps):
            torn = at % size + tp > size and at % size
            if torn or (index == new_node_at and at % size):
                at += size - at % size
            places.append(Place(at, tp, at // size))
            at += tp
        return places

    def path(self, places: Sequence[Place], source: int, target: int) -> Path:
        """The way from instance ``source`` to instance ``target``.

        A rank sends to a rank, so the side with fewer GPUs says how many lanes run side by side.
        """
        here, there = places[source], places[target]
        lanes = min(here.tp, there.tp)
        ports: list[tuple[Port, int]] = [
            (("out", source), lanes),
            (("in", target), lanes),
        ]
        if here.node == there.node:
            return Path(self.inside, lanes, tuple(ports))
        if self.nics_per_node is not None:
            ports.append((("nic-out", here.node), self.nics_per_node))
            ports.append((("nic-in", there.node), self.nics_per_node))
        return Path(self.between, lanes, tuple(ports))
