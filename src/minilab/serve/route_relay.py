"""Relay: a replica's reply on its way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

from minilab.serve import sse
from minilab.serve.api_error import ApiError
from minilab.serve.event_stream import EventStream


async def relay(
    reply: aiohttp.ClientResponse, stream: EventStream, begun: Callable[[], None]
) -> str:
    """Pass whole events on; a replica that breaks off leaves no half event behind.

    Raises:
        aiohttp.ClientError: it broke off before the first event.
    """
    rest = b""
    ended = False
    try:
        async for data in reply.content.iter_any():
            rest += data
            cut = rest.rfind(b"\n\n") + 2
            if cut < 2:
                continue
            events, rest = rest[:cut], rest[cut:]
            if events.endswith(sse.DONE):
                events, ended = events[: -len(sse.DONE)], True
            if not stream.begun:
                begun()
            if events:
                await stream.send(events)
        if not ended:
            raise aiohttp.ClientPayloadError("the stream ended without [DONE]")
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        if not stream.begun or isinstance(error, aiohttp.ClientConnectionResetError):
            raise
        told = ApiError(502, "the replica broke off; the text is not whole", code="replica_lost")
        await stream.send(sse.event(told.to_dict()))
        return "lost"
    return "done"


def whole(reply: aiohttp.ClientResponse, body: bytes) -> web.Response:
    """A reply that is not a stream, with the headers that mean something to a client."""
    kept = ("Content-Type", "Retry-After", "X-Request-Id", "WWW-Authenticate", "Allow")
    headers = {name: reply.headers[name] for name in kept if name in reply.headers}
    return web.Response(status=reply.status, body=body, headers=headers)
