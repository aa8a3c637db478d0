"""Delivery: what both ends of a hand-over do when blocks are taken, and KV arrives or is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from minilab.core.connector import Finished, KVConnector
from minilab.core.request import ABORTED, FAILED, RequestStatus
from minilab.core.scheduler import Scheduler
from minilab.sim.pd_handoff import Handoff
from minilab.sim.pd_options import PdOptions
from minilab.sim.pd_reserve import Reservations
from minilab.sim.pd_send import Sender
from minilab.sim.pd_view import DecodeView

if TYPE_CHECKING:
    from minilab.sim.pd_cluster import PdCluster


class Delivery:
    """The receiving side of a cluster's transfers. ``join`` it to the sending side before use.

    Attributes:
        connectors: one per instance.
        failed: transfers that broke.
    """

    def __init__(
        self, cluster: PdCluster, decode_views: Sequence[DecodeView], options: PdOptions
    ) -> None:
        self.failed = 0
        self._schedulers: list[Scheduler] = [i.scheduler for i in cluster.instances]  # type: ignore[misc]
        self.connectors = [
            KVConnector(index, scheduler.config.block_size, scheduler.remote)
            for index, scheduler in enumerate(self._schedulers)
        ]
        self._cluster = cluster
        self._views = decode_views
        self._early = options.reserve == "arrival"
        self._failure_rate = options.failure_rate
        self._fails = options.on_failure == "fail"
        self._random = random.Random(options.seed)

    def join(self, sender: Sender, blocks: Reservations) -> None:
        """Who sends, and who hands out the blocks of decode instances."""
        self._sender = sender
        self._blocks = blocks

    def reserved(self, handoff: Handoff) -> None:
        """Its blocks are taken. An early one's prompt may begin: by an event, for this may be the
        end of a step of another instance."""
        if handoff.receiver.status == ABORTED:
            return
        if self._early:
            self._cluster.at(self._cluster.now, partial(self._submit_sender, handoff))
        else:
            self._sender.send_rest(handoff)

    def _submit_sender(self, handoff: Handoff) -> None:
        if handoff.receiver.status != ABORTED:
            self._cluster.submit(handoff.sender, handoff.prefill)

    def arrived(self, handoff: Handoff, now: int) -> None:
        """The last byte is there, or the transfer broke; either way the sender's blocks go."""
        cluster, decode = self._cluster, handoff.decode
        handoff.ended_at = now
        self._views[decode - cluster.num_prefill].inbound -= 1
        request_id = handoff.receiver.id
        self.connectors[handoff.prefill].remote.finish_sending(request_id)
        cluster.wake(handoff.prefill)
        broke = self._failure_rate > 0.0 and self._random.random() < self._failure_rate
        self.failed += broke
        if handoff.given_up_at >= 0 or (broke and self._fails):
            cluster.interrupt(decode, partial(self.forget, handoff, FAILED))
            return
        connector = self.connectors[decode]
        if broke:
            news = Finished(failed=(request_id,))
            cluster.interrupt(decode, partial(connector.finish, news))
        else:
            cluster.interrupt(decode, partial(connector.arrived, request_id))

    def forget(self, handoff: Handoff, status: RequestStatus) -> None:
        """The receiver will not be served: give its blocks back."""
        receiver, decode = handoff.receiver, handoff.decode
        self.connectors[decode].forget(receiver.id)
        self._schedulers[decode].abort(receiver)
        self._cluster.lost(receiver, decode, status)
        self._blocks.grant(decode)
