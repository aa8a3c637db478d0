"""Routers: which instance a request goes to.

A policy is ``choose(request, views) -> index``; ``views`` are ``InstanceView`` objects that answer
for the moment at which the request arrives (``request.queued_at``). The same objects
serve the simulator and the HTTP proxy.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from minilab.core.instance import InstanceView
from minilab.core.request import RequestState


class Router(Protocol):
    """Chooses an instance for each request as it arrives."""

    def choose(self, request: RequestState, views: Sequence[InstanceView]) -> int:
        """Index into ``views``."""
        ...


class RoundRobin:
    """Each instance in turn, whatever its load."""

    def __init__(self) -> None:
        self._next = -1

    def choose(self, request: RequestState, views: Sequence[InstanceView]) -> int:
        """See ``Router``."""
        self._next = (self._next + 1) % len(views)
        return self._next


class LeastLoad:
    """The instance with the fewest requests, queued ones included; ties go to the first."""

    def choose(self, request: RequestState, views: Sequence[InstanceView]) -> int:
        """See ``Router``."""
        loads = [view.running + view.waiting for view in views]
        return loads.index(min(loads))


class Random:
    """Any instance, with equal chances."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def choose(self, request: RequestState, views: Sequence[InstanceView]) -> int:
        """See ``Router``."""
        return self._random.randrange(len(views))


ROUTERS: dict[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-load": LeastLoad,
    "random": Random,
}


def make_router(name: str) -> Router:
    """A router by name.

    Raises:
        KeyError: no such router; ``ROUTERS`` has the names.
    """
    return ROUTERS[name]()
