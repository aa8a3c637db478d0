"""The load client: sends requests when they are due, whatever became of the earlier ones.

Open loop: arrivals are on a clock, so a slow server meets a growing queue, as it would in
production. A client that waits for answers before it sends the next request measures its own
politeness instead. Held back are only a session's later turns, and requests beyond
``max_concurrency`` or the workload's own ``concurrency`` (a closed loop).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from minilab.facts.request import Request
from minilab.facts.workload import Workload
from minilab.serve.load_prompts import Prompts
from minilab.serve.load_reply import RUNNING, Reply, ask
from minilab.serve.load_wire import Target

TIMEOUT = 600.0
"""Seconds that an answer may take."""

AHEAD = 0.25
"""A request's body is made so many seconds before it is due: a long prompt takes milliseconds."""


@dataclass(frozen=True)
class Progress:
    """How far the run is: numbers of requests."""

    sent: int
    running: int
    ended: int
    total: int


@dataclass
class Sent:
    """All that was sent, in order of id. ``interrupted``: somebody stopped the run early.

    ``start`` is the workload's time 0 on the clock of the replies.
    """

    replies: list[Reply]
    start: float
    interrupted: bool


@dataclass(frozen=True)
class LoadClient:
    """Plays one workload against a server.

    Attributes:
        max_concurrency: at most so many requests outstanding; the rest waits in the client, and
            that wait counts (a request's arrival stays when it was due).
        timeout: seconds for a whole answer.
        tell: called every ``every`` seconds.
    """

    target: Target
    prompts: Prompts
    max_concurrency: int | None = None
    timeout: float = TIMEOUT
    tell: Callable[[Progress], None] | None = None
    every: float = 5.0

    async def run(self, work: Workload, stop: asyncio.Event | None = None) -> Sent:
        """Send every request; returns when all have ended, or ``stop`` is set.

        What is outstanding then is given up ("aborted"), what was not due yet is not sent.
        """
        stop = stop or asyncio.Event()
        async with session() as opened:
            start = time.perf_counter() + AHEAD
            run = _Run(self, work, opened, start)
            playing = asyncio.create_task(run.play())
            watch = [asyncio.create_task(stop.wait()), asyncio.create_task(self._report(run))]
            await asyncio.wait([playing, watch[0]], return_when=asyncio.FIRST_COMPLETED)
            interrupted = not playing.done()
            for task in (playing, *watch, *run.tasks):
                task.cancel()
            await asyncio.gather(*run.tasks, *watch, return_exceptions=True)
            if not interrupted:
                await playing  # raises what went wrong in it
        replies = sorted(run.replies, key=lambda reply: reply.request.id)
        return Sent(replies, start, interrupted)

    async def _report(self, run: _Run) -> None:
        while self.tell is not None:
            await asyncio.sleep(self.every)
            self.tell(run.progress())


class _Run:
    """One run of a LoadClient: who is due when, and who waits for whom.

    Attributes:
        replies: of everything sent so far.
        tasks: one per request that is launched and has not ended.
    """

    def __init__(
        self, client: LoadClient, work: Workload, opened: aiohttp.ClientSession, start: float
    ) -> None:
        self._client, self._work, self._session, self._start = client, work, opened, start
        self._closed = work.concurrency is not None
        self._limit = min(
            (n for n in (work.concurrency, client.max_concurrency) if n is not None), default=None
        )
        self._slots = asyncio.Semaphore(self._limit or 1)
        self._followers: dict[int, list[Request]] = {}
        self.replies: list[Reply] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def progress(self) -> Progress:
        """How far it is."""
        running = sum(reply.status == RUNNING for reply in self.replies)
        sent = len(self.replies)
        return Progress(sent, running, sent - running, len(self._work.requests))

    async def play(self) -> None:
        """Launch everyone in time and wait for the last one to end."""
        for request in self._work.requests:
            if request.after is not None:
                self._followers.setdefault(request.after, []).append(request)
        for request in self._work.requests:
            if request.after is None:
                due = self._start + request.arrival
                await _until(due - AHEAD)
                self._launch(request, due)
        while self.tasks:
            done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
            self.tasks -= done
            for task in done:
                task.result()  # raises what went wrong in it

    def _launch(self, request: Request, due: float) -> None:
        self.tasks.add(asyncio.create_task(self._one(request, due)))

    async def _one(self, request: Request, due: float) -> None:
        """One request from its body to its end, then whoever waited for that end."""
        if self._closed:
            await self._in_a_closed_loop(request, due)
            return
        body = self._body(request)
        await _until(due)
        reply = self._begin(request, due)
        if self._limit is None:
            reply.ready = due
            await self._ask(body, reply)
            return
        waits = self._slots.locked()
        async with self._slots:
            reply.ready = time.perf_counter() if waits else due
            await self._ask(body, reply)

    async def _in_a_closed_loop(self, request: Request, due: float) -> None:
        """A request comes into being when a slot is free for it."""
        await _until(due)
        async with self._slots:
            body = self._body(request)
            reply = self._begin(request, max(due, time.perf_counter()))
            reply.ready = reply.due
            await self._ask(body, reply)

    def _body(self, request: Request) -> bytes:
        client = self._client
        prompt = client.prompts.of(request)
        return client.target.body(prompt, request.output_tokens, request.cache_salt)

    def _begin(self, request: Request, due: float) -> Reply:
        reply = Reply(request, due)
        self.replies.append(reply)
        return reply

    async def _ask(self, body: bytes, reply: Reply) -> None:
        client = self._client
        await ask(self._session, client.target, body, reply, client.timeout)
        for follower in self._followers.pop(reply.request.id, ()):
            earliest = self._start + follower.arrival
            self._launch(follower, max(earliest, reply.end + follower.think))


def session() -> aiohttp.ClientSession:
    """Connections without a limit of their own: a pool of 100 would close the loop unseen."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=1 << 20,
    )


async def _until(when: float) -> None:
    delay = when - time.perf_counter()
    if delay > 0:
        await asyncio.sleep(delay)
