"""RemoteKV: requests whose KV is on its way in (reserved, ready) or out (held).

Both ends of a transfer and a load from a cache tier take this one path. What moves the bytes is a
connector; this object only knows which requests wait for it and which blocks they keep meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import (
    FINISHED,
    PREEMPTED,
    RUNNING,
    WAITING,
    WAITING_FOR_REMOTE_KVS,
    RequestState,
)

if TYPE_CHECKING:
    from minilab.core.scheduler import Scheduler


class RemoteKV:
    """The transfer states of one scheduler's requests.

    Attributes:
        receiving: reserved requests, by id; their blocks are taken, their KV is not there yet.
        ready: requests whose KV has arrived and that wait for a running slot.
        sending: finished requests, by id, whose blocks must stay until they are sent.
    """

    __slots__ = ("_scheduler", "ready", "receiving", "sending")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.receiving: dict[int, RequestState] = {}
        self.ready: deque[RequestState] = deque()
        self.sending: dict[int, RequestState] = {}

    def may_reserve(self, request: RequestState, headroom_tokens: int = 0) -> bool:
        """Whether ``request`` may take blocks now, should there be enough of them.

        Requests that lost theirs, or came before it, go first, so that decoding always gets on;
        ``headroom_tokens`` are kept free for each request that is here already.
        """
        scheduler = self._scheduler
        if scheduler.waiting:
            head = scheduler.waiting[0]
            if head.status == PREEMPTED or head.queued_at < request.queued_at:
                return False
        if not headroom_tokens:
            return True
        here = scheduler.num_running + len(self.receiving) + len(self.ready)
        size = scheduler.config.block_size
        fresh = -(-request.num_prompt_tokens // size)
        return not here or scheduler.pool.available - fresh >= -(-headroom_tokens // size) * here

    def reserve(self, request: RequestState) -> bool:
        """Take blocks for the whole prompt of ``request``; False when they are not there now."""
        if not self._scheduler.prompts.allocate(request):
            return False
        request.status = WAITING_FOR_REMOTE_KVS
        self.receiving[request.id] = request
        return True

    def finish_recving(self, request_id: int, first_token: bool) -> None:
        """The KV of a reserved request is there.

        ``first_token``: the sender has put out the first token too (DistServe), so decoding starts
        at the second. Otherwise the last prompt token is recomputed here (vLLM with NIXL).
        """
        request = self.receiving.pop(request_id)
        request.num_output_tokens = max(request.num_output_tokens, int(first_token))
        request.num_computed_tokens = request.num_tokens - 1
        self.ready.append(request)

    def finish_loading(self, request_id: int) -> None:
        """What a cache tier had of a prompt is in its blocks; the rest is computed as usual."""
        request = self.receiving.pop(request_id)
        request.num_computed_tokens += request.num_external_tokens
        self._scheduler.index.publish(request)
        self.ready.append(request)

    def fail(self, request_id: int) -> None:
        """A transfer broke: a receiver recomputes at the front of the queue, a sender lets go."""
        request = self.receiving.pop(request_id, None)
        if request is None:
            self.finish_sending(request_id)
            return
        self._scheduler.index.release(request)
        request.status = WAITING
        self._scheduler.waiting.appendleft(request)

    def commit(self, outcome: StepOutcome) -> None:
        """Transfers that an executor reports with a step."""
        for request_id in outcome.finished_recving:
            self.finish_recving(request_id, first_token=True)
        for request_id in outcome.finished_sending:
            self.finish_sending(request_id)
        for request_id in outcome.failed:
            self.fail(request_id)

    def hold(self, request: RequestState) -> None:
        """Keep the blocks of a finished request until ``finish_sending``."""
        self.sending[request.id] = request

    def finish_sending(self, request_id: int) -> None:
        """The KV of a held request has left."""
        request = self.sending.pop(request_id)
        self._scheduler.index.release(request)
        request.status = FINISHED

    def drop(self, request: RequestState) -> bool:
        """Forget an aborted request; True if it was here."""
        if request in self.ready:
            self.ready.remove(request)
            return True
        for table in (self.receiving, self.sending):
            if table.pop(request.id, None) is not None:
                return True
        return False

    def admit(self, plan: StepPlan) -> None:
        """Give running slots to requests whose KV has arrived."""
        scheduler = self._scheduler
        while self.ready and scheduler.num_running < scheduler.config.max_num_seqs:
            request = self.ready.popleft()
            request.status = RUNNING
            plan.admitted = [*plan.admitted, request]
            if request.num_output_tokens and request.num_computed_tokens == request.num_tokens - 1:
                scheduler.batch.add(request)
            else:
                scheduler.prefilling.append(request)
