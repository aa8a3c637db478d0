"""Proxy: one request's way to a replica and back.

Nothing is generated twice for a client: a placement that fails before its first byte has been
passed on is tried on another replica, one that fails later ends with an error event.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web

from minilab.core.router import REJECT
from minilab.facts.ticks import to_ticks
from minilab.serve import sse
from minilab.serve.api_error import ApiError, shutting_down
from minilab.serve.event_stream import EventStream
from minilab.serve.route_log import EventLog
from minilab.serve.route_metrics import RouteMetrics
from minilab.serve.route_relay import relay, whole
from minilab.serve.route_replicas import Replicas
from minilab.serve.route_state import Fleet
from minilab.serve.route_text import segments

AGAIN = (429, 500, 502, 503)
"""Statuses with which a replica says that it has not served the request: another may."""
_GONE = (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError)


class UnservedError(Exception):
    """A replica did not serve a request, and nothing of it has reached the client."""

    def __init__(self, told: web.Response | None = None) -> None:
        super().__init__()
        self.told = told


class Proxy:
    """Places requests and passes replies on.

    Attributes:
        draining: no new request is taken.
        in_flight: handlers of requests that run.
    """

    def __init__(
        self,
        fleet: Fleet,
        log: EventLog,
        metrics: RouteMetrics,
        *,
        chars_per_token: float = 4.0,
        stall_timeout: float = 30.0,
        replica_key: str | None = None,
    ) -> None:
        self.fleet = fleet
        self.log = log
        self.metrics = metrics
        self.draining = False
        self.in_flight: set[asyncio.Task[Any]] = set()
        self.replicas: Replicas | None = None
        self._chars = chars_per_token
        self._stall = stall_timeout
        self._key = replica_key
        self._zero = time.perf_counter()
        self._next = 0
        self._cut: set[asyncio.Task[Any]] = set()

    def tell(self, event: dict[str, Any]) -> int | None:
        """Apply an event and write it down, with what it led to."""
        event["t"] = to_ticks(time.perf_counter() - self._zero)
        choice = self.fleet.apply(event)
        self.log.write(event if choice is None else {**event, "choice": choice})
        return choice

    async def forward(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Serve ``body``, which has been read from ``request`` and made ready for a replica."""
        arrival = time.perf_counter()
        task = asyncio.current_task()
        assert task is not None
        self.in_flight.add(task)
        stream = EventStream(request, {}, self._stall) if body.get("stream") else None
        try:
            return await self._place(request, body, stream, arrival)
        except asyncio.CancelledError:
            if task not in self._cut:
                raise  # the client is gone
            if stream is None or not stream.begun:
                raise shutting_down() from None
            await stream.send(sse.event(shutting_down().to_dict()))
            return await stream.close()
        finally:
            self.in_flight.discard(task)
            self._cut.discard(task)

    async def drain(self, seconds: float) -> int:
        """Take no more requests, wait for those there are; returns how many had to be ended."""
        self.draining = True
        if self.in_flight:
            await asyncio.wait(list(self.in_flight), timeout=seconds)
        late = list(self.in_flight)
        for task in late:
            self._cut.add(task)
            task.cancel()
        return len(late)

    async def _place(
        self,
        request: web.Request,
        body: dict[str, Any],
        stream: EventStream | None,
        arrival: float,
    ) -> web.StreamResponse:
        tried: list[int] = []
        told: web.Response | None = None
        event = self._arrival(body)
        while True:
            number, self._next = self._next, self._next + 1
            index = self.tell({**event, "id": number, "tried": list(tried)})
            if index is None or index == REJECT:
                self.metrics.refused.inc()
                if told is not None:
                    return told  # the last replica's own words
                raise ApiError(
                    503,
                    "no replica answers; try again later",
                    code="no_replica",
                    headers={"Retry-After": "1"},
                )
            if tried:
                self.metrics.retries.inc()
            self._count(index, number)
            try:
                return await self._try(request, body, stream, index, number, arrival)
            except UnservedError as failed:
                tried.append(index)
                told = failed.told or told

    def _arrival(self, body: Mapping[str, Any]) -> dict[str, Any]:
        salt = body.get("cache_salt")
        most = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        user = body.get("user")
        return {
            "event": "arrival",
            "prompt": segments(body, self._chars),
            "max_tokens": most if type(most) is int and most > 0 else 16,
            "salt": None if salt is None else _digest(salt),
            "session": None if user is None else int(_digest(user), 16),
        }

    def _count(self, index: int, number: int) -> None:
        placed = self.fleet.views[index].queued[number]
        name = self._urls[index]
        self.metrics.prompt.labels(name).inc(placed.prompt)
        self.metrics.expected.labels(name).inc(placed.match)

    @property
    def _urls(self) -> list[str]:
        assert self.replicas is not None
        return self.replicas.urls

    async def _try(
        self,
        request: web.Request,
        body: dict[str, Any],
        stream: EventStream | None,
        index: int,
        number: int,
        arrival: float,
    ) -> web.StreamResponse:
        """One placement.

        Raises:
            UnservedError: the replica failed before anything of its reply was passed on.
        """
        assert self.replicas is not None
        outcome = "left"

        def begun() -> None:
            self.tell({"event": "first", "id": number})
            self.metrics.first_byte.observe(time.perf_counter() - arrival)

        try:
            async with self.replicas.session.post(
                self._urls[index] + request.path,
                data=json.dumps(body).encode(),
                headers=self.headers(request),
            ) as reply:
                if reply.status in AGAIN:
                    outcome = "refused"
                    raise UnservedError(whole(reply, await reply.read()))
                if stream is None or reply.status != 200:
                    answer = whole(reply, await reply.read())
                    begun()
                    outcome = "done"
                    return answer
                outcome = await relay(reply, stream, begun)
                if outcome == "lost":
                    self.replicas.lost(index)
                return await stream.close()
        except _GONE:
            gone = request.transport is None or request.transport.is_closing()
            if gone or (stream is not None and stream.begun):
                raise  # the client is gone, or has part of the reply: no second one for it
            self.replicas.lost(index)
            outcome = "unreachable"
            raise UnservedError() from None
        finally:
            self.tell({"event": "end", "id": number, "outcome": outcome})
            self.metrics.requests.labels(self._urls[index], outcome).inc()

    def headers(self, request: web.Request) -> dict[str, str]:
        """What a replica is told besides the body."""
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        elif "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        if "X-Request-Id" in request.headers:
            headers["X-Request-Id"] = request.headers["X-Request-Id"]
        return headers


def _digest(text: Any) -> str:
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:15]
