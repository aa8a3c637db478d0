"""Clients: who sends what when, as far as it depends on how earlier requests end.

Three kinds exist. In an open loop each request comes at its own time. A follower (``after``) comes
some time after another request has ended, as the next turn of a chat does. In a closed loop a
request is sent when one of a fixed number of slots is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from minilab.facts.request import Request
from minilab.facts.ticks import to_seconds, to_ticks


class Server(Protocol):
    """What clients send to; ``sim.cluster.Cluster`` says what the words mean."""

    now: int

    def at(self, tick: int, action: Callable[[], None]) -> None: ...

    def arrive(self, request: Request) -> None: ...


class Clients:
    """The clients of one run.

    Args:
        server: tells the time, and gets the requests.
        overhead: ticks between a client's send and the arrival.
        concurrency: closed loop: at most this many requests are outstanding; ``None``: open loop.
    """

    def __init__(self, server: Server, overhead: int, concurrency: int | None) -> None:
        self._server = server
        self._overhead = overhead
        self._slots = concurrency
        self._held_back: deque[Request] = deque()
        self._followers: dict[int, list[Request]] = {}

    @property
    def watch(self) -> bool:
        """Whether the end of a request can let another one come."""
        return self._slots is not None or bool(self._followers)

    def release(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Those of ``requests`` that arrive by their own clock; the others are kept here."""
        if self._slots is not None:
            for request in requests:
                self._server.at(to_ticks(request.arrival), partial(self._send, request))
            return ()
        if all(request.after is None for request in requests):
            return requests
        first: list[Request] = []
        for request in requests:
            if request.after is None:
                first.append(request)
            else:
                self._followers.setdefault(request.after, []).append(request)
        return first

    def ended(self, request_id: int) -> None:
        """A request has ended, served or not: what waited for it may come."""
        now = self._server.now
        for request in self._followers.pop(request_id, ()):
            self._arrive_at(max(now + to_ticks(request.think), to_ticks(request.arrival)), request)
        if self._slots is not None:
            self._slots += 1
            if self._held_back:
                self._send(self._held_back.popleft())

    def _send(self, request: Request) -> None:
        """A closed-loop client wants to send: now if a slot is free, else when one is."""
        assert self._slots is not None
        if self._slots:
            self._slots -= 1
            self._arrive_at(self._server.now, request)
        else:
            self._held_back.append(request)

    def _arrive_at(self, tick: int, request: Request) -> None:
        """Send ``request`` at ``tick``; that is its arrival now."""
        sent = request._replace(arrival=to_seconds(tick))
        self._server.at(tick + self._overhead, partial(self._server.arrive, sent))
