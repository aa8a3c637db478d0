"""Worker: the loop of one engine of the split, and what both roles have in common.

A turn reads messages, lets the connector hear what the transport has moved, and makes one step of
the engine. The process ends when the one that started it closes its channel, or is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from minilab.core.connector import Finished, KVConnector
from minilab.core.request import RequestState
from minilab.engine.generation import Generation
from minilab.engine.llm import LLM
from minilab.engine.pd.awake import MOST_SECONDS, AwakeClock
from minilab.engine.pd.channel import Bell, Channel, Message, wait
from minilab.engine.pd.settings import PdSettings
from minilab.engine.pd.wire import Moved
from minilab.engine.sampling import SamplingParams
from minilab.facts.request import Request

SIGNS_OF_LIFE = 4
"""In one timeout."""
POLL_SECONDS = 0.001


class Mover(Protocol):
    """What both ends' transports have."""

    @property
    def moved(self) -> Moved: ...
    @property
    def polls(self) -> bool:
        """Whether it has to be asked for news, for it rings no bell."""
        ...

    def get_finished(self) -> Finished: ...


class Worker:
    """One engine, its connector and its two channels.

    Attributes:
        transport: what moves the bytes; a role names its kind, whoever makes the worker sets it.
        states: requests that are queued or computed here, by id.
        connector: this end of the transfers.
        now: seconds on its ``AwakeClock`` when the turn began.

    Args:
        rank: 0 prefill, 1 decode.
        proxy: to the process that started this one. peer: to the other engine.
    """

    transport: Mover

    def __init__(
        self, rank: int, llm: LLM, settings: PdSettings, proxy: Channel, peer: Channel
    ) -> None:
        self.llm = llm
        self.settings = settings
        self.proxy, self.peer = proxy, peer
        self.bell = Bell()
        scheduler = llm.scheduler
        self.connector = KVConnector(rank, scheduler.config.block_size, scheduler.remote)
        self.states: dict[int, RequestState] = {}
        self._chunked: set[int] = set()
        self._cached_tokens = 0
        self._clock = AwakeClock()
        self.now = self._next_sign = 0.0

    # -- what a role adds -------------------------------------------------------------------------

    def handle(self, message: Message) -> None:
        """One message, from the proxy or from the other engine."""
        raise NotImplementedError

    def moves(self) -> None:
        """Everything about transfers that may be done between two steps."""
        raise NotImplementedError

    def ended(self, state: RequestState, text: Generation) -> None:
        """The engine is done with a request."""
        raise NotImplementedError

    def sign_of_life(self) -> None:
        """Tell who might wait that this process still runs."""
        self.proxy.send("alive")

    # -- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the proxy is gone."""
        pause = self.settings.timeout / SIGNS_OF_LIFE
        while self.proxy.open:
            busy = self.turn()
            idle = POLL_SECONDS if self.transport.polls else min(pause, MOST_SECONDS)
            wait([self.proxy, self.peer], 0.0 if busy else idle, self.bell)

    def turn(self) -> bool:
        """Read, move, step; whether there was a step."""
        for channel in (self.proxy, self.peer):
            for message in channel.receive():
                self.handle(message)
        self.now = self._clock.now()
        if self.now >= self._next_sign:
            self._next_sign = self.now + self.settings.timeout / SIGNS_OF_LIFE
            self.sign_of_life()
        self.moves()
        stepped = self.llm.step()
        self._watch()
        return stepped

    def _watch(self) -> None:
        """After a step: who was cut into chunks, and who is done."""
        for request in self.llm.scheduler.prefilling:
            if request.num_computed_tokens > max(0, request.num_cached_tokens):
                self._chunked.add(request.id)
        texts = self.llm.executor.texts
        for state in [state for state in self.states.values() if texts[state.id].finish_reason]:
            del self.states[state.id]
            self._cached_tokens += max(0, state.num_cached_tokens)
            self.ended(state, texts.pop(state.id))

    # -- requests ---------------------------------------------------------------------------------

    def open(self, message: Message, max_tokens: int | None = None, **flags: bool) -> RequestState:
        """The state of the request that ``message`` brings; nothing is queued.

        ``max_tokens`` instead of the request's own; ``flags`` go to ``RequestState``.
        """
        params = params_of(message)
        if max_tokens is not None:
            params = replace(params, max_tokens=max_tokens)
        prompt: list[int] = message["tokens"]
        spec = Request(
            message["id"], 0.0, len(prompt), params.max_tokens, cache_salt=message["salt"]
        )
        state = RequestState(spec, **flags)
        self.llm.executor.texts[state.id] = Generation([*prompt], params, self.llm.tokenizer)
        self.llm.record.arrived(state)
        self.states[state.id] = state
        return state

    def give_up(self, state: RequestState) -> None:
        """Forget a request and take its blocks back."""
        self.connector.forget(state.id)
        self.llm.abort(state)
        self.states.pop(state.id, None)

    def fail(self, request_id: int, reason: str) -> None:
        """Nobody will finish this request."""
        self.proxy.send("failed", id=request_id, error=reason)

    def tell_end(self, state: RequestState, text: Generation) -> None:
        """A request is done for good: its answer goes to the proxy."""
        self.proxy.send(
            "finished",
            id=state.id,
            token_ids=text.output,
            text=text.text,
            finish_reason=text.finish_reason,
            stop_reason=text.stop_reason,
            num_preemptions=state.num_preemptions,
        )

    def tell_status(self) -> None:
        """Blocks and counts, checked against every block table there is."""
        scheduler = self.llm.scheduler
        remote, pool = scheduler.remote, scheduler.pool
        holders = [*scheduler.prefilling, *scheduler.batch.requests.values(), *remote.ready]
        holders += [*remote.receiving.values(), *remote.sending.values()]
        pool.check([request.block_table for request in holders])
        self.proxy.send(
            "status",
            free_blocks=pool.available,
            used_blocks=pool.used,
            num_blocks=pool.num_blocks,
            held=len(remote.sending),
            steps=self.llm.num_steps,
            preemptions=scheduler.num_preemptions,
            chunked=len(self._chunked),
            cached_tokens=self._cached_tokens,
            moved=self.transport.moved.to_json(),
        )


def params_of(message: Mapping[str, Any]) -> SamplingParams:
    """How the request of a message draws its tokens."""
    return SamplingParams(**message["params"])
