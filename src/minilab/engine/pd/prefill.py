"""PrefillWorker: computes prompts, holds their blocks, and sends them when the decode side asks.

Held blocks have a lease: if the decode side neither asks nor gives a sign of life for so long, they
are given back and the request has failed (vLLM: ``kv_lease_duration``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minilab.core.connector import Finished
from minilab.core.request import RequestState
from minilab.engine.generation import Generation
from minilab.engine.llm import LLM
from minilab.engine.pd.channel import Channel, Message
from minilab.engine.pd.settings import PdSettings
from minilab.engine.pd.worker import Mover, Worker, params_of

GONE = "the decode process is gone"


class SendTransport(Mover, Protocol):
    """The prefill end's worker half."""

    def send(self, request_id: int, block_ids: Sequence[int]) -> None:
        """The other end asks for these blocks."""

    def refuse(self, request_id: int) -> None:
        """It asks for blocks that are gone."""


class PrefillWorker(Worker):
    """Rank 0.

    Attributes:
        leases: until when (on ``now``) the blocks of a finished request are kept, by id; one that
            is being sent has none.
    """

    transport: SendTransport

    def __init__(self, llm: LLM, settings: PdSettings, proxy: Channel, peer: Channel) -> None:
        super().__init__(0, llm, settings, proxy, peer)
        self.leases: dict[int, float] = {}

    def handle(self, message: Message) -> None:
        """See ``Worker``."""
        op = message["op"]
        if op == "prefill":
            self._queue(message)
        elif op == "pull":
            self._pull(message["id"], message["block_ids"])
        elif op == "waiting":
            for request_id in message["ids"]:
                if request_id in self.leases:
                    self._renew(request_id)
        elif op in ("abort", "release"):
            self._abort(message["id"])
        elif op == "status":
            self.tell_status()

    def moves(self) -> None:
        """See ``Worker``."""
        self._let_go(self.transport.get_finished())
        if not self.peer.open:
            for state in [*self.states.values()]:
                self.give_up(state)
                self.fail(state.id, GONE)
        for request_id, until in [*self.leases.items()]:
            if self.now >= until or not self.peer.open:
                self._let_go(Finished(failed=(request_id,)))
                self.fail(request_id, GONE if not self.peer.open else "its blocks were never asked")

    def ended(self, state: RequestState, text: Generation) -> None:
        """A prompt is done: hand it over, unless its first token was its last."""
        first = self.settings.prefill_puts_out
        keep, params = self.connector.request_finished(state, state.block_table, first)
        if params is None or (first and text.finish_reason == "stop"):
            if keep:
                self._let_go(Finished(sending=(state.id,)))
            self.tell_end(state, text)
            return
        self._renew(state.id)
        self.proxy.send(
            "prefilled",
            id=state.id,
            first_token=text.output[0],
            num_cached_tokens=state.num_cached_tokens,
            num_preemptions=state.num_preemptions,
            kv_transfer_params=params._asdict(),
        )

    def _queue(self, message: Message) -> None:
        if not self.peer.open:
            self.fail(message["id"], GONE)
            return
        only = self.settings.prefill_puts_out and params_of(message).max_tokens == 1
        state = self.open(message, max_tokens=1, hold_blocks=not only)
        self.llm.scheduler.add(state)

    def _pull(self, request_id: int, block_ids: Sequence[int]) -> None:
        held = self.connector.remote.sending.get(request_id)
        if held is None or not set(block_ids) <= set(held.block_table):
            self.transport.refuse(request_id)
            return
        self.leases.pop(request_id, None)
        self.transport.send(request_id, block_ids)

    def _renew(self, request_id: int) -> None:
        self.leases[request_id] = self.now + self.settings.timeout

    def _abort(self, request_id: int) -> None:
        if request_id in self.states:
            self.give_up(self.states[request_id])
        elif request_id in self.leases:  # what is being sent is let go when that has ended
            self._let_go(Finished(failed=(request_id,)))

    def _let_go(self, finished: Finished) -> None:
        held = self.connector.remote.sending
        sent = [request_id for request_id in finished.sending if request_id in held]
        failed = [request_id for request_id in finished.failed if request_id in held]
        for request_id in (*sent, *failed):
            self.leases.pop(request_id, None)
        self.connector.finish(Finished(sending=sent, failed=failed))
