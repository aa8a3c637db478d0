"""Sender: puts the KV of a hand-over on the wires, whole or layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from minilab.sim.cluster import Cluster
from minilab.sim.pd_handoff import ARRIVED, MOVING, NOT_SENT, Handoff
from minilab.sim.pd_sizer import TransferSizer
from minilab.sim.pd_wires import Cargo, Wires
from minilab.sim.topology import Path, Place, Topology


class Sender:
    """Sends what a hand-over's connector says; ``arrived`` hears of the last byte.

    With overlap all layers but the last may leave while the prompt is computed (``send_head``), and
    the last one follows when both the head has arrived and the prompt is done.
    """

    def __init__(
        self,
        cluster: Cluster,
        wires: Wires,
        sizer: TransferSizer,
        topology: Topology,
        places: Sequence[Place],
        arrived: Callable[[Handoff, int], None],
    ) -> None:
        self._cluster = cluster
        self._wires = wires
        self._sizer = sizer
        self._topology, self._places = topology, places
        self._paths: dict[tuple[int, int], Path] = {}
        self._arrived = arrived

    def send_head(self, handoff: Handoff, now: int) -> None:
        """The prompt begins to be computed, and its blocks on the other side are reserved."""
        if handoff.head == NOT_SENT and self._sizer.layers > 1:
            handoff.head = MOVING
            self._move(handoff, 1.0 - 1.0 / self._sizer.layers, self._head_arrived)

    def _head_arrived(self, handoff: Handoff, now: int) -> None:
        handoff.head = ARRIVED
        if handoff.ready_at >= 0:
            self.send_rest(handoff)

    def send_rest(self, handoff: Handoff) -> None:
        """The prompt is done: what has not moved does. A head that still moves sees to that."""
        if handoff.head != MOVING:
            share = 1.0 / self._sizer.layers if handoff.head == ARRIVED else 1.0
            self._move(handoff, share, self._arrived)

    def _move(self, handoff: Handoff, share: float, done: Callable[[Handoff, int], None]) -> None:
        load = handoff.load
        assert load is not None, "only what has its blocks reserved is sent"
        handoff.sent = True
        cargo = self._sizer.size(load.num_tokens, load.num_blocks)
        if share < 1.0:
            pieces = math.ceil(cargo.descriptors * share)
            cargo = Cargo(cargo.nbytes * share, pieces, cargo.staging * share)
        ends = (handoff.prefill, handoff.decode)
        path = self._paths.get(ends)
        if path is None:
            path = self._paths[ends] = self._topology.path(self._places, *ends)
        now = self._cluster.now
        self._wires.start(now, path, cargo, partial(done, handoff), handoff.begin)
