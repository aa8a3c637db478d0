"""PdCluster: a prefill pool and a decode pool of the real serving core, with wires between them.

A request that is split takes this way: queue and prompt on the prefill side, which holds its blocks
when done; blocks on the decode side, taken between two steps; the transfer; a running slot, again
between two steps. Where the decode side has no blocks, KV stays where it is, the prefill pool fills
up, and its queue grows: that is the back-pressure. Requests that lost their blocks come before new
reservations, so that decoding always gets on.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from minilab.core.connector import Finished, KVConnector, KVTransferParams
from minilab.core.instance import Instance, InstanceView
from minilab.core.pd_router import PdRouter
from minilab.core.request import (
    ABORTED,
    FAILED,
    PREEMPTED,
    REJECTED,
    RequestState,
    RequestStatus,
)
from minilab.core.router import REJECT
from minilab.core.scheduler import Scheduler
from minilab.facts.request import Request
from minilab.recorder import Recorder
from minilab.sim.cluster import Cluster
from minilab.sim.pd_handoff import ARRIVED, MOVING, NOT_SENT, Handoff
from minilab.sim.pd_options import PdOptions
from minilab.sim.pd_record import LateTokenRecorder, PdRecorder
from minilab.sim.pd_sizer import TransferSizer
from minilab.sim.pd_wires import Cargo, Wires
from minilab.sim.topology import Path, Place, Topology


class DecodeView(InstanceView):
    """A decode instance as a router sees it; requests that are on their way to it count."""

    __slots__ = ("inbound",)

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.inbound = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue, and those sent here whose KV has not arrived."""
        return super().waiting + self.inbound


class PdCluster(Cluster):
    """Instances ``0 .. num_prefill - 1`` compute prompts, the others decode.

    Args:
        pools: (prefill instances, decode instances), at least one each.
        route: decides who is split and where the halves go.
        sizer, topology, places: what moves, over which wires, between which GPUs.
    """

    def __init__(
        self,
        pools: tuple[Sequence[Instance], Sequence[Instance]],
        route: PdRouter,
        sizer: TransferSizer,
        topology: Topology,
        places: Sequence[Place],
        options: PdOptions | None = None,
        *,
        request_overhead: float = 0.0,
        concurrency: int | None = None,
    ) -> None:
        prefill, decode = pools
        super().__init__(
            [*prefill, *decode], request_overhead=request_overhead, concurrency=concurrency
        )
        self.options = options = PdOptions() if options is None else options
        self.num_prefill = len(prefill)
        self.wires = Wires(self.at, options.alpha, options.max_transfers)
        self.failed_transfers = 0
        self._route = route
        self._sizer = sizer
        self._topology, self._places = topology, places
        self._paths: dict[tuple[int, int], Path] = {}
        self._decode_views = [DecodeView(instance) for instance in decode]
        self._prefill_views = self.views[: len(prefill)]
        self._asking: list[deque[Handoff]] = [deque() for _ in self.instances]
        self._schedulers: list[Scheduler] = [i.scheduler for i in self.instances]  # type: ignore[misc]
        self._connectors = [
            KVConnector(index, scheduler.config.block_size, scheduler.remote)
            for index, scheduler in enumerate(self._schedulers)
        ]
        self._sender_counts = options.first_token == "prefill"
        self._early = options.reserve == "arrival"
        self._random = random.Random(options.seed)
        self._watches = True
        self._tell = self._told
        make = PdRecorder if self._sender_counts else LateTokenRecorder
        self.recorder: PdRecorder = make(
            self.instances, self.num_prefill, self._started if options.overlap else None
        )
        self.handoffs = self.recorder.handoffs

    def run(self, requests: Sequence[Request]) -> Recorder:
        """See ``Cluster``."""
        super().run(requests)
        for handoff in self.handoffs.values():
            self._count_first_token(handoff)
        return self.recorder

    def _count_first_token(self, handoff: Handoff) -> None:
        """A token of the prefill side is out, whatever became of the request."""
        state = handoff.receiver
        if state.first_token_at >= 0 and not state.num_output_tokens:
            state.num_output_tokens = 1

    def _told(self, state: RequestState, index: int) -> None:
        """Routers that count what they placed hear of every end."""
        if index < self.num_prefill:
            self._route.prefill_ended(state, index)
        else:
            self._route.decode_ended(state, index - self.num_prefill)

    # -- arrival ----------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        receiver = RequestState(request)
        self.states[receiver.id] = receiver
        receiver.queued_at = self.now
        route = self._route.choose(receiver, self._prefill_views, self._decode_views)
        if REJECT in route:
            receiver.status = REJECTED
            self.recorder.finished_at[receiver.id] = self.now
            self._let_go(receiver)
            return
        decode = self.num_prefill + route.decode
        self._decode_views[route.decode].place(receiver)
        self.recorder.placed_on[receiver.id] = decode
        if route.prefill is None:
            self.submit(receiver, decode)
            return
        sender = RequestState(request, hold_blocks=True)
        sender.queued_at = self.now
        sender.max_tokens = 1
        if self._sender_counts and request.output_tokens == 1:
            sender.hold_blocks = False  # its only token comes out here: nothing to hand over
            self._route.decode_ended(sender, route.decode)
            self.states[sender.id] = sender
            self.recorder.placed_on[sender.id] = route.prefill
            self.submit(sender, route.prefill)
            return
        receiver.remote_prefill = True
        handoff = Handoff(sender, receiver, route.prefill, decode)
        if not (
            self._schedulers[decode].fits(receiver) and self._schedulers[route.prefill].fits(sender)
        ):
            receiver.status = REJECTED
            self._route.prefill_ended(sender, route.prefill)
            self.recorder.finished_at[receiver.id] = self.now
            self._ended(receiver)
            return
        self.handoffs[receiver.id] = handoff
        self._decode_views[route.decode].inbound += 1
        if self._early:
            params = KVTransferParams(route.prefill, (), request.prompt_tokens, self._sender_counts)
            self._ask(handoff, params)
        else:
            self.submit(sender, route.prefill)

    # -- the prompt is done -----------------------------------------------------------------------

    def _finished(self, index: int, states: Sequence[RequestState]) -> None:
        if index >= self.num_prefill:
            for state in states:
                self._ended(state)
            self._grant(index)
            return
        for state in states:
            handoff = self.handoffs.get(state.id)
            if handoff is None:
                self._ended(state)
            else:
                self._prefilled(handoff)

    def _prefilled(self, handoff: Handoff) -> None:
        sender, receiver = handoff.sender, handoff.receiver
        handoff.ready_at = self.now
        if handoff.given_up_at >= 0:
            self.recorder.finished_at[sender.id] = handoff.given_up_at
            if handoff.sent:
                self._send_tail(handoff)
            return
        self._route.prefill_ended(sender, handoff.prefill)
        del self.recorder.finished_at[sender.id]  # only half of it is
        receiver.scheduled_at = sender.scheduled_at
        receiver.num_cached_tokens = sender.num_cached_tokens
        receiver.num_preemptions += sender.num_preemptions
        if self._sender_counts:
            receiver.first_token_at = self.now
        if self._early:
            self._send_tail(handoff)
            return
        connector = self._connectors[handoff.prefill]
        _, params = connector.request_finished(sender, sender.block_table, self._sender_counts)
        assert params is not None, "a sender holds its blocks"
        self._ask(handoff, params)

    # -- blocks on the decode side ----------------------------------------------------------------

    def _ask(self, handoff: Handoff, params: KVTransferParams) -> None:
        """Line up for blocks; they are taken between two steps."""
        self._connectors[handoff.decode].expect(handoff.receiver, params)
        asking = self._asking[handoff.decode]
        asking.append(handoff)
        if len(asking) > 1:
            return
        instance = self.instances[handoff.decode]
        if instance.until < 0:
            self._grant(handoff.decode)  # wakes nobody: reserved blocks are no work
            return
        boundary = self._undisturbed(instance, handoff.receiver)
        if boundary is None:
            self.interrupt(handoff.decode, partial(self._grant, handoff.decode))
        else:
            self._grant(handoff.decode, boundary)

    def _undisturbed(self, instance: Instance, request: RequestState) -> int | None:
        """The tick at which the step under way ends, if the run may go on as planned after it.

        It may if what the request takes is blank and the rest of the run needs none of it. The
        blocks can then be taken at once, for nobody can tell; ending the run costs far more.
        """
        if self.options.headroom_tokens:
            return None  # how much is free then depends on what the streams take until then
        scheduler: Scheduler = instance.scheduler  # type: ignore[assignment]
        size = scheduler.config.block_size
        need = -(-request.num_prompt_tokens // size)
        growth = len(scheduler.batch.requests) * (instance.steps // size + 1)  # at most
        if need + growth > len(scheduler.pool.blank):
            return None
        end = instance.end_of(instance.begun_at(self.now))
        return end if self.now < end < instance.until else None

    def _grant(self, index: int, begin: int | None = None) -> None:
        """Reserve for those who asked first, as far as blocks go, from tick ``begin`` on."""
        asking = self._asking[index]
        while asking and self._may_take(index, asking[0].receiver):
            if not self._connectors[index].reserve(asking[0].receiver):
                return
            handoff = asking.popleft()
            (handoff.load,) = self._connectors[index].build_connector_meta()
            if begin is not None or self._early:
                # An event, not a call: this may be the end of a step of another instance.
                self.at(begin or self.now, partial(self._reserved, handoff))
            else:
                self._reserved(handoff)

    def _may_take(self, index: int, request: RequestState) -> bool:
        """Whether nobody goes first and the headroom for those who are here is left."""
        scheduler = self._schedulers[index]
        if scheduler.waiting:
            head = scheduler.waiting[0]
            if head.status == PREEMPTED or head.queued_at < request.queued_at:
                return False
        headroom = self.options.headroom_tokens
        if not headroom:
            return True
        here = scheduler.num_running + len(scheduler.remote.receiving) + len(scheduler.remote.ready)
        size = scheduler.config.block_size
        fresh = -(-request.num_prompt_tokens // size)
        return not here or scheduler.pool.available - fresh >= -(-headroom // size) * here

    def _reserved(self, handoff: Handoff) -> None:
        if handoff.receiver.status == ABORTED:
            return
        if self._early:
            self.submit(handoff.sender, handoff.prefill)
        else:
            self._send_tail(handoff)

    # -- the transfer -----------------------------------------------------------------------------

    def _started(self, handoff: Handoff, now: int) -> None:
        """Layer by layer: all but the last layer may leave while the prompt is computed."""
        if handoff.head == NOT_SENT and self._sizer.layers > 1:
            handoff.head = MOVING
            self._move(handoff, 1.0 - 1.0 / self._sizer.layers, self._head_arrived)

    def _head_arrived(self, handoff: Handoff, now: int) -> None:
        handoff.head = ARRIVED
        if handoff.ready_at >= 0:
            self._send_tail(handoff)

    def _send_tail(self, handoff: Handoff) -> None:
        """What has not moved does; while the head is still moving, its arrival sees to that."""
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
        self.wires.start(self.now, path, cargo, partial(done, handoff), handoff.begin)

    def _arrived(self, handoff: Handoff, now: int) -> None:
        """The last byte is there, or the transfer broke; either way the sender's blocks go."""
        handoff.ended_at = now
        self._decode_views[handoff.decode - self.num_prefill].inbound -= 1
        self._free_sender(handoff)
        rate = self.options.failure_rate
        broke = rate > 0.0 and self._random.random() < rate
        self.failed_transfers += broke
        if handoff.given_up_at >= 0 or (broke and self.options.on_failure == "fail"):
            self.interrupt(handoff.decode, partial(self._forget, handoff, FAILED))
            return
        ids = (handoff.receiver.id,)
        news = Finished(failed=ids) if broke else Finished(recving=ids)
        self.interrupt(handoff.decode, partial(self._connectors[handoff.decode].finish, news))

    def _free_sender(self, handoff: Handoff) -> None:
        """The sender's blocks are free; who waits for them is woken."""
        self._connectors[handoff.prefill].finish(Finished(sending=(handoff.sender.id,)))
        instance = self.instances[handoff.prefill]
        if instance.until < 0 and instance.scheduler.num_waiting:
            self._idle.add(handoff.prefill)

    def _forget(self, handoff: Handoff, status: RequestStatus) -> None:
        """The receiver will not be served: give its blocks back."""
        receiver = handoff.receiver
        self._connectors[handoff.decode].forget(receiver.id)
        self._schedulers[handoff.decode].abort(receiver)
        if receiver.id not in self.recorder.finished_at:
            receiver.status = status
            self.recorder.aborted(handoff.decode, receiver, self.now)
            self._ended(receiver)
        self._grant(handoff.decode)

    # -- the client gives up ----------------------------------------------------------------------

    def _abort(self, request_id: int) -> None:
        handoff = self.handoffs.get(request_id)
        if handoff is None or handoff.ended_at >= 0:
            super()._abort(request_id)
            index = self.recorder.placed_on.get(request_id, 0)
            if self._asking[index]:
                self.interrupt(index, partial(self._grant, index))  # its blocks are free
            return
        if handoff.given_up_at >= 0:
            return
        receiver = handoff.receiver
        receiver.status = ABORTED
        handoff.given_up_at = self.now
        self._count_first_token(handoff)
        self.recorder.aborted(handoff.decode, receiver, self.now)
        self._ended(receiver)
        if handoff.ready_at < 0:
            self._route.prefill_ended(handoff.sender, handoff.prefill)
        if handoff.sent:
            return  # what is under way, or has its turn coming, frees both ends when it arrives
        self._decode_views[handoff.decode - self.num_prefill].inbound -= 1
        asking = self._asking[handoff.decode]
        if handoff in asking:
            asking.remove(handoff)
        self.interrupt(handoff.decode, partial(self._forget, handoff, ABORTED))
        prefill = self._schedulers[handoff.prefill]
        self.interrupt(handoff.prefill, partial(prefill.abort, handoff.sender))
