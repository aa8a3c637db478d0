"""Routers that look at load, at the session, or at nothing; none of them knows what is cached."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from minilab.core.request import RequestState
from minilab.core.router import View, load


class RoundRobin:
    """Each instance in turn, whatever its load."""

    def __init__(self) -> None:
        self._next = -1

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        self._next = (self._next + 1) % len(views)
        return self._next


class Random:
    """Any instance, with equal chances."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        return self._random.randrange(len(views))


class LeastLoad:
    """The instance with the fewest requests, queued ones included; ties go to the first."""

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        loads = [load(view) for view in views]
        return loads.index(min(loads))


class LeastKV:
    """The instance with the smallest share of its KV blocks in use (llm-d's KV utilisation scorer).

    A request takes its blocks step by step, so a burst goes where the first of it went.
    """

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        now = request.queued_at
        used = [view.blocks_at(now) / view.num_blocks for view in views]
        return used.index(min(used))


class PowerOfTwo:
    """The less loaded of two instances drawn at random.

    Two draws are enough to avoid the worst (Mitzenmacher 2001), and, unlike ``LeastLoad``, do not
    send everybody to the same instance when the figures are old.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        pair = self._random.sample(range(len(views)), min(2, len(views)))
        return min(pair, key=lambda index: load(views[index]))


class SessionAffinity:
    """A session stays where its first request went, which was the least loaded instance then.

    Requests without a session are placed by load alone. It knows no text: two sessions with one
    document land anywhere.
    """

    def __init__(self) -> None:
        self._home: dict[Any, int] = {}
        self._by_load = LeastLoad()

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        spec: Any = request.request
        index = self._home.get(spec.session)
        if index is None or index >= len(views):
            index = self._by_load.choose(request, views)
            if spec.session is not None:
                self._home[spec.session] = index
        return index
