"""Reply: one request as the client saw it, chunk by chunk, with the client's clock."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from minilab.facts.request import Request
from minilab.serve.load_wire import Event, EventLines, Target, event

REFUSED = (429, 503)
"""HTTP statuses with which a server says that it has no room now."""


RUNNING = "running"


@dataclass
class Reply:
    """What came of one request. Times are seconds of ``time.perf_counter``, NaN for never.

    Attributes:
        due: when it should have been sent.
        ready: when nothing held it back any more (a free slot of the client's own limit).
        sent: when it was.
        chunks: (time, tokens that had come by then) of each chunk with output; the second is
            ``None`` where the server does not count along.
        prompt_tokens, output_tokens, cached_tokens: as the server counted; ``None``: it did not.
        status: one of a run log's, or RUNNING.
    """

    request: Request
    due: float
    ready: float = math.nan
    sent: float = math.nan
    end: float = math.nan
    chunks: list[tuple[float, int | None]] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    status: str = RUNNING
    error: str = ""

    def fail(self, error: str, status: str = "failed") -> None:
        """It ended without its answer, for this reason (one short line)."""
        self.status, self.error = status, " ".join(error.split())[:200]

    def count(self, usage: dict[str, Any]) -> None:
        """Note the server's counts."""
        self.prompt_tokens = _whole(usage.get("prompt_tokens"), self.prompt_tokens)
        self.output_tokens = _whole(usage.get("completion_tokens"), self.output_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.cached_tokens = _whole(details.get("cached_tokens"), self.cached_tokens)


def _whole(value: object, otherwise: int | None) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if sound else otherwise  # type: ignore[return-value]


async def ask(
    session: aiohttp.ClientSession, target: Target, body: bytes, reply: Reply, timeout: float
) -> None:
    """Send ``body``, read the answer into ``reply``. Whatever goes wrong becomes its status.

    ``timeout`` is seconds for the whole answer.
    """
    reply.sent = time.perf_counter()
    try:
        await asyncio.wait_for(_ask(session, target, body, reply), timeout)
    except asyncio.TimeoutError:
        reply.fail(f"no whole answer within {timeout:g} s")
    except aiohttp.ClientError as error:
        reply.fail(f"{type(error).__name__}: {error}")
    except ValueError as error:
        reply.fail(f"not an answer in OpenAI's form: {error}")
    except asyncio.CancelledError:
        reply.fail("given up by the client", "aborted")
        raise
    finally:
        if reply.status != "finished":
            reply.end = time.perf_counter()


async def _ask(session: aiohttp.ClientSession, target: Target, body: bytes, reply: Reply) -> None:
    async with session.post(target.endpoint, data=body, headers=target.headers) as response:
        if response.status != 200:
            text = (await response.content.read(4096)).decode(errors="replace")
            status = "rejected" if response.status in REFUSED else "failed"
            reply.fail(f"HTTP {response.status}: {_message(text)}", status)
            return
        if "text/event-stream" not in response.headers.get("Content-Type", ""):
            reply.fail("answered without streaming; there are no token times to measure")
            return
        if await _read(response, target.chat, reply):
            _complete(reply)
        elif not reply.error:
            reply.fail("the stream ended before [DONE]")


async def _read(response: aiohttp.ClientResponse, chat: bool, reply: Reply) -> bool:
    """Read events up to ``[DONE]``; False if the stream ends, or reports an error, before it."""
    lines = EventLines()
    async for data in response.content.iter_any():
        now = time.perf_counter()
        for line in lines.feed(data):
            if line == "[DONE]":
                return True
            found = event(line, chat)
            if found.error is not None:
                reply.fail(found.error)
                return False
            _note(found, now, reply)
    return False


def _note(found: Event, now: float, reply: Reply) -> None:
    """Keep a chunk that brought tokens; the server's own count decides where there is one."""
    before = reply.output_tokens or 0
    if found.usage is not None:
        reply.count(found.usage)
    counted = found.usage is not None and reply.output_tokens is not None
    grew = (reply.output_tokens or 0) > before
    if found.choice and (grew if counted else found.text):
        reply.chunks.append((now, reply.output_tokens if counted else None))
        reply.end = now


def _complete(reply: Reply) -> None:
    if not reply.chunks or reply.output_tokens == 0:
        reply.fail("ended without a token")
    else:
        reply.status = "finished"


def _message(text: str) -> str:
    """What an error body says: OpenAI's message, or its beginning."""
    try:
        value = json.loads(text)
        said = value.get("error", value)
        return str(said.get("message", said) if isinstance(said, dict) else said)
    except (ValueError, AttributeError):
        return text
