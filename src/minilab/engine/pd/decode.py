"""DecodeWorker: takes blocks for a prompt, fetches its KV into them, and goes on from there.

Blocks are reserved before anything is asked for; who has none waits, and says so, so that the
prefill side keeps its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from minilab.core.connector import Finished, KVLoad, KVTransferParams
from minilab.core.request import RequestState
from minilab.engine.generation import Generation
from minilab.engine.llm import LLM
from minilab.engine.pd.channel import Channel, Message
from minilab.engine.pd.settings import PdSettings
from minilab.engine.pd.worker import Mover, Worker


class LoadTransport(Mover, Protocol):
    """The decode end's worker half."""

    def start_load_kv(self, loads: Sequence[KVLoad]) -> None:
        """See ``core.connector.KVTransport``."""

    def is_moving(self, request_id: int) -> bool:
        """Whether somebody may still write to its blocks."""


class DecodeWorker(Worker):
    """Rank 1.

    Attributes:
        asking: requests that wait for blocks, first come first served.
    """

    transport: LoadTransport

    def __init__(self, llm: LLM, settings: PdSettings, proxy: Channel, peer: Channel) -> None:
        super().__init__(1, llm, settings, proxy, peer)
        self.asking: deque[RequestState] = deque()
        self._given_up: set[int] = set()

    def handle(self, message: Message) -> None:
        """See ``Worker``."""
        op = message["op"]
        if op == "decode":
            self._expect(message)
        elif op == "abort":
            self._abort(message["id"])
        elif op == "status":
            self.tell_status()

    def ask(self, load: KVLoad) -> None:
        """Let the other end send what ``load`` names."""
        self.peer.send("pull", id=load.request.id, block_ids=list(load.remote_block_ids))

    def moves(self) -> None:
        """See ``Worker``."""
        self._arrived(self.transport.get_finished())
        remote, asking = self.connector.remote, self.asking
        while asking and remote.may_reserve(asking[0]) and self.connector.reserve(asking[0]):
            asking.popleft()
        self.transport.start_load_kv(self.connector.build_connector_meta())

    def ended(self, state: RequestState, text: Generation) -> None:
        """See ``Worker``."""
        self.tell_end(state, text)

    def sign_of_life(self) -> None:
        """See ``Worker``."""
        super().sign_of_life()
        if self.asking:
            self.peer.send("waiting", ids=[state.id for state in self.asking])

    def _expect(self, message: Message) -> None:
        """A prompt is ready at the other end."""
        state = self.open(message, remote_prefill=True)
        params = KVTransferParams(**message["kv_transfer_params"])
        if params.first_token:
            executor = self.llm.executor
            text = executor.texts[state.id]
            model = executor.model
            text.push(message["first_token"], model.config.eos_token_ids)
            executor.sampler.skip(text.params, state.id, model.config.vocab_size, model.device)
            state.first_token_at = state.queued_at
        self.connector.expect(state, params)
        self.asking.append(state)

    def _arrived(self, finished: Finished) -> None:
        """What the transport reports; who was given up meanwhile gives its blocks back now."""
        fails = self.settings.on_failure == "fail"
        lost = [i for i in finished.failed if fails and i not in self._given_up]
        for request_id in lost:
            self.fail(request_id, "its KV did not arrive")
        for request_id in [i for i in (*finished.recving, *finished.failed) if i in self._given_up]:
            lost.append(request_id)
            self._given_up.discard(request_id)
        for request_id in lost:
            self.give_up(self.states[request_id])
        self.connector.finish(
            Finished(
                recving=[i for i in finished.recving if i not in lost],
                failed=[i for i in finished.failed if i not in lost],
            )
        )

    def _abort(self, request_id: int) -> None:
        state = self.states.get(request_id)
        if state is None:
            return
        if self.transport.is_moving(request_id):
            self._given_up.add(request_id)
            return
        if state in self.asking:
            self.asking.remove(state)
            self.peer.send("release", id=request_id)
        self.give_up(state)
