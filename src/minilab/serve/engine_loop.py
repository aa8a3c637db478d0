"""EngineLoop: the thread that owns the engine. Nobody else touches it.

Requests come in by a queue and news goes out by a call, one per step; so HTTP may be slow, and a
handler may die, without the engine noticing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from typing import Any

from minilab.core.request import RequestState
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.serve.api_error import ApiError, bad_request
from minilab.serve.channel import Update
from minilab.serve.metrics import Ended, ServerMetrics, Snapshot
from minilab.serve.step_watch import StepWatch


@dataclass(frozen=True)
class Job:
    """One request on its way to the engine; ``arrival`` is on ``time.perf_counter``'s clock."""

    number: int
    prompt: list[int]
    params: SamplingParams
    cache_salt: str | None
    arrival: float


@dataclass
class Served:
    """A job that the engine has, and what has been told of it."""

    job: Job
    state: RequestState
    tokens: int = 0
    chars: int = 0
    scheduled: float = math.nan
    first: float = math.nan
    last: float = math.nan


Deliver = Callable[[list[Update]], None]


class EngineLoop:
    """Runs the engine while there is work, and sleeps otherwise.

    ``deliver`` is called from the engine's thread, after each step that had news. ``keep_record``
    keeps what a run log needs.

    Attributes:
        snapshot: the engine after its last step.
        broken: what stopped the engine, if something did.
    """

    def __init__(
        self, llm: LLM, metrics: ServerMetrics, deliver: Deliver, keep_record: bool = False
    ) -> None:
        self._llm = llm
        self._metrics = metrics
        self._deliver = deliver
        self._watch = StepWatch(llm, keep_record)
        self._inbox: SimpleQueue[Job | int | None] = SimpleQueue()
        self._served: dict[int, Served] = {}  # by number of the job
        self._by_state: dict[int, Served] = {}  # by id in the engine
        self._submitted = 0
        self._taken = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.snapshot = Snapshot()
        self.broken: BaseException | None = None

    # -- from other threads -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Hand a request over; call it from one thread only."""
        self._submitted += 1
        self._inbox.put(job)

    def abort(self, number: int) -> None:
        """Give a request up and free its blocks; nothing happens if it has ended already."""
        self._inbox.put(number)

    def stop(self, timeout: float = 10.0) -> bool:
        """End the thread; False if it is stuck in a step."""
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def run_log(self, **meta: Any) -> RunLog | None:
        """What was recorded, once the thread has ended; None if nothing was."""
        record, speculation = self._watch.record, self._llm.executor.speculation
        if speculation is not None:
            meta = {"spec_decode": asdict(speculation.counts), **meta}
        return None if record is None else record.to_runlog(**meta)

    @property
    def underway(self) -> int:
        """Requests handed over that the engine has not seen yet."""
        return self._submitted - self.snapshot.taken

    # -- the engine's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._take():
                if self._served:
                    self._step()
                self._publish()
        except BaseException as error:  # whatever it is, nobody may wait for ever
            self.broken = error
            self._break(error)
            if not isinstance(error, Exception):
                raise

    def _take(self) -> bool:
        """Take what has come in; waits while there is nothing to do. False: the end."""
        wait = not self._served
        while True:
            try:
                order = self._inbox.get(block=wait)
            except Empty:
                return True
            wait = False
            if order is None:
                return False
            if isinstance(order, Job):
                self._add(order)
            else:
                self._give_up(order)

    def _add(self, job: Job) -> None:
        self._taken += 1
        try:
            state = self._llm.add(job.prompt, job.params, job.cache_salt)
        except InputError as error:
            self._metrics.given_up("error")
            self._deliver([Update(job.number, error=bad_request(str(error)))])
            return
        self._served[job.number] = self._by_state[state.id] = Served(job, state)

    def _give_up(self, number: int) -> None:
        served = self._served.pop(number, None)
        if served is not None:
            del self._by_state[served.state.id]
            self._llm.abort(served.state)
            self._metrics.given_up("abort")

    def _step(self) -> None:
        if not self._llm.step():
            raise RuntimeError(f"no progress with {len(self._served)} requests")
        now = time.perf_counter()
        self._count_step(now)
        self._watch.forget()
        texts = self._llm.executor.texts
        news = []
        for number, served in list(self._served.items()):
            text = texts[served.state.id]
            came = len(text.tokens) - text.num_prompt_tokens - served.tokens
            if not came:
                continue
            self._count_tokens(served, came, now)
            piece, served.chars = text.text[served.chars :], len(text.text)
            cached = max(0, served.state.num_cached_tokens)
            reason = text.finish_reason or None
            news.append(Update(number, piece, came, cached, reason, text.stop_reason))
            if reason:
                self._finish(served, reason)
        if news:
            self._deliver(news)

    def _count_step(self, now: float) -> None:
        plan, metrics = self._watch.plan, self._metrics
        if metrics.spec is not None and self._llm.executor.speculation is not None:
            metrics.spec.follow(self._llm.executor.speculation.counts)
        metrics.step_tokens.observe(plan.num_tokens)
        if plan.preempted:
            metrics.preemptions.inc(len(plan.preempted))
        for state in plan.admitted:
            served = self._by_state[state.id]
            if math.isnan(served.scheduled):
                served.scheduled = self._watch.began
                if self._llm.scheduler.config.enable_prefix_caching:
                    metrics.prefix_queries.inc(state.num_prompt_tokens)
                    metrics.prefix_hits.inc(max(0, state.num_cached_tokens))

    def _count_tokens(self, served: Served, came: int, now: float) -> None:
        metrics = self._metrics
        if not served.tokens:
            served.first = now
            metrics.ttft.observe(now - served.job.arrival)
            metrics.prompt_tokens.inc(len(served.job.prompt))
            metrics.cached_tokens.inc(max(0, served.state.num_cached_tokens))
        else:
            metrics.gap.observe(now - served.last)
        for _ in range(came - 1):
            metrics.gap.observe(0.0)  # tokens of one step come together
        metrics.generation_tokens.inc(came)
        served.tokens += came
        served.last = now

    def _finish(self, served: Served, reason: str) -> None:
        job, state = served.job, served.state
        self._llm.executor.texts.pop(state.id)
        del self._served[job.number], self._by_state[state.id]
        self._metrics.ended(
            Ended(
                reason=reason,
                arrival=job.arrival,
                scheduled=served.scheduled,
                first=served.first,
                last=served.last,
                prompt=len(job.prompt),
                cached=max(0, state.num_cached_tokens),
                output=served.tokens,
                most=job.params.max_tokens,
                preemptions=state.num_preemptions,
            )
        )

    def _publish(self) -> None:
        scheduler = self._llm.scheduler
        running, waiting = scheduler.num_running, scheduler.num_waiting
        self.snapshot = Snapshot(running, waiting, scheduler.pool.used, self._taken)

    def _break(self, error: BaseException) -> None:
        """Tell everybody, also those whose request nobody took any more."""
        told = ApiError(500, f"the engine stopped: {type(error).__name__}", code="engine_dead")
        numbers = list(self._served)
        while not self._inbox.empty():
            order = self._inbox.get()
            if isinstance(order, Job):
                numbers.append(order.number)
        for _ in numbers:
            self._metrics.given_up("error")
        self._deliver([Update(number, error=told) for number in numbers])
