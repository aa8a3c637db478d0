"""Reservations: who waits for blocks on which decode instance, and when they are taken.

Blocks are taken between two steps, as an engine's scheduler does. Requests that lost theirs come
before new reservations, so that decoding always gets on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from minilab.core.connector import KVConnector, KVTransferParams
from minilab.core.instance import Instance
from minilab.core.request import RequestState
from minilab.core.scheduler import Scheduler
from minilab.sim.cluster import Cluster
from minilab.sim.pd_handoff import Handoff


class Reservations:
    """The queues for blocks of all decode instances.

    Args:
        cluster: whose clock and instances these are.
        connectors: one per instance.
        headroom: tokens kept free for each request that is there already.
        reserved: called when a hand-over has its blocks.
    """

    def __init__(
        self,
        cluster: Cluster,
        connectors: Sequence[KVConnector],
        headroom: int,
        reserved: Callable[[Handoff], None],
    ) -> None:
        self._cluster = cluster
        self._connectors = connectors
        self._headroom = headroom
        self._done = reserved
        self._asking: list[deque[Handoff]] = [deque() for _ in connectors]

    def ask(self, handoff: Handoff, params: KVTransferParams) -> None:
        """Line up for blocks."""
        index = handoff.decode
        self._connectors[index].expect(handoff.receiver, params)
        asking = self._asking[index]
        asking.append(handoff)
        if len(asking) > 1:
            return
        instance = self._cluster.instances[index]
        if instance.until < 0:
            self.grant(index)  # wakes nobody: reserved blocks are no work
            return
        boundary = self._undisturbed(instance, handoff.receiver)
        if boundary is None:
            self._cluster.interrupt(index, partial(self.grant, index))
        else:
            self.grant(index, boundary)

    def leave(self, handoff: Handoff) -> None:
        """A request that was given up no longer waits."""
        if handoff in self._asking[handoff.decode]:
            self._asking[handoff.decode].remove(handoff)

    def freed(self, index: int) -> None:
        """Blocks of an instance will be free when its step is over: whoever waits looks then."""
        if self._asking[index]:
            self._cluster.interrupt(index, partial(self.grant, index))

    def _undisturbed(self, instance: Instance, request: RequestState) -> int | None:
        """The tick at which the step under way ends, if the run may go on as planned after it.

        It may if what the request takes is blank and the rest of the run needs none of it. The
        blocks can then be taken at once, for nobody can tell; ending the run costs far more.
        """
        if self._headroom:
            return None  # how much is free then depends on what the streams take until then
        scheduler: Scheduler = instance.scheduler  # type: ignore[assignment]
        size = scheduler.config.block_size
        need = -(-request.num_prompt_tokens // size)
        growth = len(scheduler.batch.requests) * (instance.steps // size + 1)  # at most
        if need + growth > len(scheduler.pool.blank):
            return None
        now = self._cluster.now
        end = instance.end_of(instance.begun_at(now))
        return end if now < end < instance.until else None

    def grant(self, index: int, begin: int | None = None) -> None:
        """Reserve for those who asked first, as far as blocks go; they are told at ``begin``."""
        asking = self._asking[index]
        scheduler: Scheduler = self._cluster.instances[index].scheduler  # type: ignore[assignment]
        while asking and scheduler.remote.may_reserve(asking[0].receiver, self._headroom):
            if not self._connectors[index].reserve(asking[0].receiver):
                return
            handoff = asking.popleft()
            (handoff.load,) = self._connectors[index].build_connector_meta()
            if begin is None:
                self._done(handoff)
            else:
                self._cluster.at(begin, partial(self._done, handoff))
