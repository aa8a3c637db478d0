"""InstanceView: what a router may know of an instance in the simulator (``core.router.View``)."""

from __future__ import annotations

from typing import Any

from minilab.core.instance import Instance
from minilab.core.request import RequestState


class InstanceView:
    """A window on one instance. Inside a run it answers in closed form, so asking cuts nothing.

    Times are ticks, and not before the run in progress began.
    """

    __slots__ = ("_answer", "_asked", "_instance", "_matched", "_scheduler")

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._scheduler: Any = instance.scheduler
        self._matched = (-1, 0)
        self._asked, self._answer = (-1, -1, -1), 0

    @property
    def running(self) -> int:
        """Requests with a running slot."""
        count: int = self._scheduler.num_running
        return count

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        count: int = self._scheduler.num_waiting
        return count

    @property
    def decoding(self) -> int:
        """Requests whose stream has begun."""
        count: int = self._scheduler.num_decoding
        return count

    @property
    def pending_tokens(self) -> int:
        """Known tokens of queued and half-computed requests that are not computed yet."""
        tokens: int = self._scheduler.pending_tokens()
        return tokens

    @property
    def num_blocks(self) -> int:
        """KV blocks of the instance."""
        return int(self._instance.scheduler.pool.num_blocks)

    @property
    def cached_blocks(self) -> int:
        """KV blocks that can be found by content."""
        return int(self._instance.scheduler.pool.num_cached)

    def _begun(self, now: int) -> int:
        """``Instance.begun_at``, worked out once for all that is asked at one moment."""
        run = self._instance
        if run.until < 0 or run.steps == 1:
            return run.begun_at(now)
        key = (now, run.start, run.until)
        if key != self._asked:
            self._asked, self._answer = key, run.begun_at(now)
        return self._answer

    def tokens_at(self, now: int) -> int:
        """KV tokens of running requests that are computed at ``now``."""
        run = self._instance
        begun = self._begun(now)
        over = begun if begun and now >= run.end_of(begun) else begun - 1
        tokens: int = self._scheduler.tokens_in_flight(max(0, over))
        return tokens

    def blocks_at(self, now: int) -> int:
        """KV blocks in use at ``now``; a step holds its blocks from its beginning."""
        scheduler: Any = self._instance.scheduler
        return int(scheduler.blocks_in_use(self._instance.begun_at(now)))

    def match(self, request: RequestState) -> int:
        """Prompt tokens of ``request`` that this instance's cache holds when it arrives."""
        found: int = self._scheduler.match(request, self._begun(request.queued_at))
        self._matched = (request.id, found)
        return found

    def place(self, request: RequestState) -> None:
        """``request`` was sent here: what the router saw cached is what it expects to save."""
        if self._matched[0] == request.id:
            request.expected_hit = self._matched[1]
