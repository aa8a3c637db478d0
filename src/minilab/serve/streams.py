"""Streams: one request's news as server-sent events.

A client that does not read costs nobody else anything: the engine goes on, and what it says waits
in the channel as one text (``event_stream`` says when its connection is dropped).
"""

from __future__ import annotations

from typing import Any

from minilab.serve import sse
from minilab.serve.api_error import ApiError
from minilab.serve.event_stream import EventStream
from minilab.serve.replies import Reply, Usage
from minilab.serve.service import Running


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
