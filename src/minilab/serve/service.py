"""Service: admits requests, hands them to the engine's thread, brings back what it says.

It lives on the event loop. Tokens, templates and limits are settled here, before the engine hears
of a request; what gets in ends in exactly one way: finished, aborted, or told of an error.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.facts.runlog import RunLog
from minilab.serve.api_error import ApiError, overloaded, shutting_down
from minilab.serve.channel import Channel, Update
from minilab.serve.engine_loop import EngineLoop, Job
from minilab.serve.limits import ServeLimits
from minilab.serve.metrics import ServerMetrics
from minilab.serve.prompts import Prompts
from minilab.serve.request_form import Chat, Completion

_LONGEST_WAIT = 60  # seconds that Retry-After may say


@dataclass(frozen=True)
class Running:
    """A request that the engine has: its news, and its prompt's length in tokens."""

    channel: Channel
    prompt_tokens: int


class Service:
    """One engine, as handlers see it. Make it inside the event loop that it shall serve.

    Attributes:
        model: the name under which the engine's model is served.
        limits: see ``ServeLimits``.
        metrics: what /metrics shows.
        prompts: turns texts and chats into token ids.
        draining: no new request is taken.
        ended: set by whoever wants the server to end, and when the engine has broken.
    """

    def __init__(
        self,
        llm: LLM,
        model: str,
        limits: ServeLimits | None = None,
        *,
        max_model_len: int | None = None,
        chat_template: str | None = None,
        keep_record: bool = False,
    ) -> None:
        self.model = model
        self.limits = limits or ServeLimits()
        self.max_model_len = min(llm.max_model_len, max_model_len or llm.max_model_len)
        self.prompts = Prompts(llm, self.max_model_len, chat_template)
        speculation = llm.executor.speculation
        most = speculation.table.most if speculation else 0
        self.metrics = ServerMetrics(model, llm.scheduler.config, self.max_model_len, most)
        self.draining = False
        self.ended = asyncio.Event()
        self.created = int(time.time())
        self._slots = llm.scheduler.config.max_num_seqs
        self._loop = asyncio.get_running_loop()
        self._engine = EngineLoop(llm, self.metrics, self._from_engine, keep_record)
        self._channels: dict[int, Channel] = {}
        self._next = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._engine.start()

    # -- what handlers ask --------------------------------------------------------------------

    def check_model(self, name: str | None) -> None:
        """Raise the ApiError of a model that is not served here."""
        if name is not None and name != self.model:
            raise ApiError(
                404,
                f"the model {name!r} is not served here; {self.model!r} is",
                code="model_not_found",
                param="model",
            )

    def check_open(self) -> None:
        """Raise the ApiError of a server that takes no requests."""
        if self.broken is not None:
            raise ApiError(503, "the engine has stopped; restart the server", code="engine_dead")
        if self.draining:
            raise shutting_down()

    def exposition(self) -> bytes:
        """The text of /metrics."""
        self.metrics.between_steps(self._engine.snapshot, self._engine.underway)
        return self.metrics.text()

    @property
    def broken(self) -> BaseException | None:
        """What stopped the engine, if something did."""
        return self._engine.broken

    @property
    def in_flight(self) -> int:
        """Requests that the engine works on or has queued."""
        return len(self._channels)

    @asynccontextmanager
    async def generate(self, form: Completion | Chat, arrival: float) -> AsyncIterator[Running]:
        """Serve ``form``; leaving the block early gives the request up.

        Raises:
            ApiError: 400, 429 or 503, before the block begins.
        """
        self.check_open()
        self._check_queue()
        prompt = await self.prompts.of(form)
        params = form.params(max(1, self.max_model_len - len(prompt)))
        self.prompts.check(prompt, params)
        self.check_open()  # tokens may have taken a while
        self._check_queue()
        channel = self._submit(prompt, params, form.cache_salt, arrival)
        left = self.limits.request_timeout - (time.perf_counter() - arrival)
        alarm = self._loop.call_later(left, channel.fail, self._too_slow())
        try:
            yield Running(channel, len(prompt))
        finally:
            alarm.cancel()
            self._leave(channel)

    # -- the end ------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> int:
        """Take no more requests and wait for those there are; returns how many had to be ended."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except asyncio.TimeoutError:
            late = list(self._channels.values())
            for channel in late:
                channel.fail(shutting_down())
            return len(late)
        return 0

    def close(self) -> RunLog | None:
        """End the engine's thread; returns the run log, if one was kept."""
        self._engine.stop()
        return self._engine.run_log(model=self.model)

    def _too_slow(self) -> ApiError:
        seconds = self.limits.request_timeout
        told = f"the request took more than {seconds:g} s; ask for fewer tokens, or later"
        return ApiError(504, told, code="request_timeout")

    # -- inside -------------------------------------------------------------------------------

    def _check_queue(self) -> None:
        """Refuse what would wait behind ``max_queue`` others; free running slots are no queue."""
        seen = self._engine.snapshot
        free = 0 if seen.waiting else self._slots - seen.running
        if seen.waiting + self._engine.underway < self.limits.max_queue + free:
            return
        self.metrics.rejections.inc()
        seconds = math.ceil(self.metrics.mean_latency() * self.limits.max_queue / self._slots)
        raise overloaded(
            f"{self.limits.max_queue} requests wait already; try again later",
            min(seconds, _LONGEST_WAIT),
        )

    def _submit(
        self, prompt: list[int], params: SamplingParams, salt: str | None, arrival: float
    ) -> Channel:
        number, self._next = self._next, self._next + 1
        self._channels[number] = channel = Channel(number)
        self._idle.clear()
        self._engine.submit(Job(number, prompt, params, salt, arrival))
        return channel

    def _from_engine(self, news: list[Update]) -> None:
        """Called in the engine's thread."""
        with suppress(RuntimeError):  # the event loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._deliver, news)

    def _deliver(self, news: list[Update]) -> None:
        for update in news:
            channel = self._channels.get(update.number)
            if channel is not None:
                channel.put(update)
                if channel.done:
                    self._forget(channel)
        if self.broken is not None:
            self.ended.set()

    def _leave(self, channel: Channel) -> None:
        """A handler is done with its request, which may not be done itself."""
        if channel.number in self._channels:
            self._engine.abort(channel.number)
            self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        del self._channels[channel.number]
        if not self._channels:
            self._idle.set()
