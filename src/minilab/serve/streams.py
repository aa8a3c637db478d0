"""Streams: one request's news as server-sent events.

A client that does not read costs nobody else anything: the engine goes on, what it says waits in
the channel as one text, and after ``stall_timeout`` without progress the connection is dropped.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from minilab.serve import sse
from minilab.serve.api_error import ApiError
from minilab.serve.replies import Reply, Usage
from minilab.serve.service import Running


class EventStream:
    """The response of one stream. Headers go out with the first event, so that a request that
    fails before it still gets the status it deserves.
    """

    def __init__(self, request: web.Request, headers: dict[str, str], stall_timeout: float) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={**sse.HEADERS, **headers})
        self._stall_timeout = stall_timeout

    async def send(self, data: bytes) -> None:
        """Send bytes; drops the connection if its reader does not take them in time."""
        if not self._response.prepared:
            await self._response.prepare(self._request)
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        if not transport.get_write_buffer_size():
            await self._response.write(data)
            return
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(self._stall_timeout, transport.abort)
        try:
            await self._response.write(data)
        finally:
            alarm.cancel()

    async def close(self) -> web.StreamResponse:
        """End the response."""
        await self.send(sse.DONE)
        await self._response.write_eof()
        return self._response

    @property
    def begun(self) -> bool:
        """Whether the status has gone out."""
        return self._response.prepared


async def stream_reply(stream: EventStream, reply: Reply, running: Running, usage: str) -> None:
    """Send a request's news until it ends.

    A request that is ended from outside after its first event gets an event with OpenAI's error
    object in place of the last one.

    Raises:
        ApiError: it was ended before the first event.
    """
    tokens = 0
    reason: str | None = None
    while reason is None:
        try:
            piece = await running.channel.next()
        except ApiError as error:
            if not stream.begun:
                raise
            await stream.send(sse.event(error.to_dict()))
            return
        chunk = reply.chunk(piece.text, piece.reason, first=not tokens)
        tokens += piece.tokens
        reason = piece.reason
        told = Usage(running.prompt_tokens, tokens, piece.cached)
        await stream.send(sse.event(_with_usage(chunk, told, usage)))
    if usage != "none":
        await stream.send(sse.event(reply.only_usage(told)))


def _with_usage(chunk: dict[str, Any], told: Usage, usage: str) -> dict[str, Any]:
    if usage == "none":
        return chunk
    return chunk | {"usage": told.to_dict() if usage == "each" else None}
