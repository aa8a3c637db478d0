"""EventStream: a response made of server-sent events, to a client that may be slow or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from minilab.serve import sse


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
        await self._write(self._response.write, data)

    async def close(self) -> web.StreamResponse:
        """End the response."""
        await self._write(self._response.write_eof, sse.DONE)
        return self._response

    async def _write(self, write: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
        if not self._response.prepared:
            await self._response.prepare(self._request)
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        if not transport.get_write_buffer_size():
            await write(data)
            return
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(self._stall_timeout, transport.abort)
        try:
            await write(data)
        finally:
            alarm.cancel()

    @property
    def begun(self) -> bool:
        """Whether the status has gone out."""
        return self._response.prepared
