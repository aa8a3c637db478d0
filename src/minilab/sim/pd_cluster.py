"""PdCluster: a prefill pool and a decode pool of the real serving core, with wires between them.

A request that is split takes this way: queue and prompt on the prefill side, which holds its blocks
when done; blocks on the decode side, taken between two steps; the transfer; a running slot, again
between two steps. Where the decode side has no blocks, KV stays where it is, the prefill pool fills
up, and its queue grows: that is the back-pressure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from minilab.core.connector import KVTransferParams
from minilab.core.instance import Instance
from minilab.core.pd_router import PdRouter
from minilab.core.request import ABORTED, REJECTED, RequestState, RequestStatus
from minilab.core.router import REJECT
from minilab.core.scheduler import Scheduler
from minilab.facts.request import Request
from minilab.recorder import Recorder
from minilab.sim.cluster import Cluster
from minilab.sim.pd_delivery import Delivery
from minilab.sim.pd_handoff import Handoff
from minilab.sim.pd_options import PdOptions
from minilab.sim.pd_record import LateTokenRecorder, PdRecorder
from minilab.sim.pd_reserve import Reservations
from minilab.sim.pd_send import Sender
from minilab.sim.pd_sizer import TransferSizer
from minilab.sim.pd_view import DecodeView
from minilab.sim.pd_wires import Wires
from minilab.sim.topology import Place, Topology


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
        self._route = route
        self._decode_views = [DecodeView(instance) for instance in decode]
        self._prefill_views = self.views[: len(prefill)]
        self._schedulers: list[Scheduler] = [i.scheduler for i in self.instances]  # type: ignore[misc]
        self.delivery = Delivery(self, self._decode_views, options)
        self._blocks = Reservations(
            self, self.delivery.connectors, options.headroom_tokens, self.delivery.reserved
        )
        self._sender = Sender(self, self.wires, sizer, topology, places, self.delivery.arrived)
        self.delivery.join(self._sender, self._blocks)
        self._sender_counts = options.first_token == "prefill"
        self._early = options.reserve == "arrival"
        self._watches = True
        self._tell = self._told if route.counts else None
        make = PdRecorder if self._sender_counts else LateTokenRecorder
        self.recorder: PdRecorder = make(
            self.instances, self.num_prefill, self._sender.send_head if options.overlap else None
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

    def arrive(self, request: Request) -> None:
        """See ``Cluster``."""
        receiver = RequestState(request)
        self.states[receiver.id] = receiver
        receiver.queued_at = self.now
        route = self._route.choose(receiver, self._prefill_views, self._decode_views)
        if REJECT in route:
            receiver.status = REJECTED
            self.recorder.finished_at[receiver.id] = self.now
            self.clients.ended(receiver.id)
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
            self._blocks.ask(handoff, params)
        else:
            self.submit(sender, route.prefill)

    # -- the prompt is done -----------------------------------------------------------------------

    def _finished(self, index: int, states: Sequence[RequestState]) -> None:
        if index >= self.num_prefill:
            if self.clients.watch or self._tell is not None:
                for state in states:
                    self._ended(state)
            self._blocks.grant(index)
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
                self._sender.send_rest(handoff)
            return
        if self._tell is not None:
            self._route.prefill_ended(sender, handoff.prefill)
        del self.recorder.finished_at[sender.id]  # only half of it is
        receiver.scheduled_at = sender.scheduled_at
        receiver.num_cached_tokens = sender.num_cached_tokens
        receiver.num_preemptions += sender.num_preemptions
        if self._sender_counts:
            receiver.first_token_at = self.now
        if self._early:
            self._sender.send_rest(handoff)
            return
        if not receiver.block_hashes:  # the same text: no need to hash it twice
            receiver.block_hashes = sender.block_hashes[:]
        connector = self.delivery.connectors[handoff.prefill]
        _, params = connector.request_finished(sender, sender.block_table, self._sender_counts)
        assert params is not None, "a sender holds its blocks"
        self._blocks.ask(handoff, params)

    # -- what a delivery needs --------------------------------------------------------------------

    def wake(self, index: int) -> None:
        """Blocks of an instance were freed: if it idles and somebody waits, it looks again."""
        instance = self.instances[index]
        if instance.until < 0 and instance.scheduler.num_waiting:
            self._idle.add(index)

    def lost(self, receiver: RequestState, index: int, status: RequestStatus) -> None:
        """A request will not be served at the instance it was meant for."""
        if receiver.id not in self.recorder.finished_at:
            receiver.status = status
            self.recorder.aborted(index, receiver, self.now)
            self._ended(receiver)

    # -- the client gives up ----------------------------------------------------------------------

    def _abort(self, request_id: int) -> None:
        handoff = self.handoffs.get(request_id)
        if handoff is None or handoff.ended_at >= 0:
            super()._abort(request_id)
            self._blocks.freed(self.recorder.placed_on.get(request_id, 0))
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
        self._blocks.leave(handoff)
        self.interrupt(handoff.decode, partial(self.delivery.forget, handoff, ABORTED))
        prefill = self._schedulers[handoff.prefill]
        self.interrupt(handoff.prefill, partial(prefill.abort, handoff.sender))
