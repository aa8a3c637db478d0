"""Wires: transfers on a virtual clock, sharing the ports they pass.

A transfer alone lasts ``latency + alpha * descriptors + bytes / bandwidth`` (``facts.cost``). When
n transfers pass a port, each gets the n-th part of it, and a transfer moves at the pace of its
slowest port. So the pace of one never falls when another one leaves, which is why more bandwidth
can't delay anybody: with fewer transfers left at every moment, all are at least as fast. (Max-min
sharing, which gives away what others leave unused, uses a wire better and lacks that property.)
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from minilab.facts.cost_transfer import transfer_seconds
from minilab.facts.errors import InputError
from minilab.facts.hardware import Link
from minilab.facts.ticks import to_ticks
from minilab.sim.topology import Path, Port

At = Callable[[int, Callable[[], None]], None]


class Cargo(NamedTuple):
    """What one transfer moves; ``staging`` seconds pass before and after it, off the wire."""

    nbytes: float
    descriptors: int
    staging: float = 0.0


class _Flow:
    """A transfer under way: the share of it that is left, and its pace."""

    __slots__ = ("done", "left", "pace", "ports", "since", "stamp", "trail")

    def __init__(
        self, ports: list[tuple[Port, int]], done: Callable[[int], None], now: int, trail: int
    ) -> None:
        self.ports = ports  # (port, ticks that the whole transfer takes of it when alone)
        self.done = done
        self.trail = trail
        self.left = 1.0
        self.pace = -1  # ticks that the whole transfer would take as things are now
        self.since = now
        self.stamp = 0


class Wires:
    """All transfers of a cluster.

    Args:
        at: puts an action into the cluster's calendar.
        alpha: seconds per descriptor.
        max_transfers: transfers that may leave one instance at once; others wait their turn.

    Attributes:
        count: transfers begun. busy_ticks: what they would have taken alone, added up.
    """

    def __init__(self, at: At, alpha: float, max_transfers: int | None = None) -> None:
        if max_transfers is not None and max_transfers < 1:
            raise InputError(f"max_transfers is {max_transfers}; give at least 1")
        self._at = at
        self._alpha = alpha
        self._limit = max_transfers
        self._leaving: dict[Port, int] = {}
        self._queues: dict[Port, deque[Callable[[int], None]]] = {}
        self._on: defaultdict[Port, dict[_Flow, None]] = defaultdict(dict)
        self._wide: dict[tuple[str, float, int], Link] = {}
        self.count = 0
        self.busy_ticks = 0

    def start(
        self,
        now: int,
        path: Path,
        cargo: Cargo,
        done: Callable[[int], None],
        begun: Callable[[int], None],
    ) -> None:
        """Send; ``begun(tick)`` when its turn comes, ``done(tick)`` when the last byte is there."""
        if self._limit is None:
            self._begin(path, cargo, done, begun, now)
            return
        gate = path.ports[0][0]
        send = partial(self._begin, path, cargo, partial(self._left, gate, done), begun)
        if self._leaving.setdefault(gate, 0) < self._limit:
            self._leaving[gate] += 1
            send(now)
        else:
            self._queues.setdefault(gate, deque()).append(send)

    def _left(self, gate: Port, done: Callable[[int], None], now: int) -> None:
        """One is through; whoever has waited longest takes its turn."""
        queue = self._queues.get(gate)
        if queue:
            queue.popleft()(now)
        else:
            self._leaving[gate] -= 1
        done(now)

    def _begin(
        self,
        path: Path,
        cargo: Cargo,
        done: Callable[[int], None],
        begun: Callable[[int], None],
        now: int,
    ) -> None:
        begun(now)
        alone = self._alone(path.link, path.lanes, cargo)
        ports = [
            (port, alone if lanes == path.lanes else self._alone(path.link, lanes, cargo))
            for port, lanes in path.ports
        ]
        self.count += 1
        self.busy_ticks += alone if len(ports) == 2 else max(ticks for _, ticks in ports)
        staging = to_ticks(cargo.staging)
        flow = _Flow(ports, done, now + staging, staging)
        if staging:
            self._at(now + staging, partial(self._enter, flow))
        else:
            self._enter(flow)

    def _alone(self, link: Link, lanes: int, cargo: Cargo) -> int:
        """Ticks of a transfer that has ``lanes`` lanes of a link to itself."""
        if lanes > 1:
            key = (link.name, link.bandwidth, lanes)
            wide = self._wide.get(key)
            if wide is None:
                wide = Link(link.name, link.bandwidth * lanes, link.latency)
                self._wide[key] = wide
            link = wide
        return to_ticks(transfer_seconds(cargo.nbytes, link, cargo.descriptors, self._alpha))

    def _enter(self, flow: _Flow) -> None:
        shared = False
        for port, _ in flow.ports:
            flows = self._on[port]
            if flows:
                shared = True
            flows[flow] = None
        if shared:
            self._change(flow, flow.since)
        else:
            self._set_pace(flow, flow.since)

    def _change(self, flow: _Flow, now: int) -> None:
        """``flow`` came or went: everyone at its ports may have another pace from now on."""
        touched: dict[_Flow, None] = {}
        for port, _ in flow.ports:
            touched.update(self._on[port])
        for other in touched:
            if now > other.since:
                if other.pace > 0:
                    other.left = max(0.0, other.left - (now - other.since) / other.pace)
                other.since = now
            self._set_pace(other, now)

    def _set_pace(self, flow: _Flow, now: int) -> None:
        """The slowest port decides; a new end goes into the calendar."""
        pace = 0
        for port, ticks in flow.ports:
            pace = max(pace, len(self._on[port]) * ticks)
        if pace == flow.pace:
            return
        flow.pace = pace
        flow.stamp += 1
        end = now + round(flow.left * pace)
        self._at(end, partial(self._end, flow, flow.stamp, end))

    def _end(self, flow: _Flow, stamp: int, now: int) -> None:
        if flow.stamp != stamp:
            return  # its pace changed; the new end is in the calendar too
        flow.stamp = -1
        alone = True
        for port, _ in flow.ports:
            flows = self._on[port]
            del flows[flow]
            if flows:
                alone = False
        if not alone:
            self._change(flow, now)
        if flow.trail:
            self._at(now + flow.trail, partial(flow.done, now + flow.trail))
        else:
            flow.done(now)
