"""EventStream: a response made of server-sent events, to a client that may be slow or gone."""

from __future__ import annotations

import asyncio

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
