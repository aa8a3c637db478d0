"""A scripted OpenAI-compatible server: it answers what the test wrote down, and remembers all.

An answer is a list of steps: bytes to send, a number of seconds to wait, an asyncio.Event to wait
for, or DROP to cut the connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

DROP = "drop"
DONE = b"data: [DONE]\n\n"


def sse(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def chunk(text: str = "x", *, finish: str | None = None, usage: dict | None = None) -> bytes:
    """A completion's chunk."""
    value: dict[str, Any] = {"choices": [{"text": text, "finish_reason": finish}]}
    return sse(value if usage is None else {**value, "usage": usage})


def usage(prompt: int, output: int, cached: int | None = None) -> dict:
    found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output}
    return (
        found if cached is None else {**found, "prompt_tokens_details": {"cached_tokens": cached}}
    )


def bill(prompt: int, output: int, cached: int | None = None) -> bytes:
    """The last chunk: counts, and no choice."""
    return sse({"choices": [], "usage": usage(prompt, output, cached)})


def plain_answer(body: dict, counted: bool = True) -> list:
    """As many one-token chunks as were asked for."""
    prompt, n = body["prompt"], body["max_tokens"]
    size = len(prompt) if isinstance(prompt, list) else len(prompt.split())
    steps: list = []
    for k in range(1, n + 1):
        told = usage(size, k) if counted else None
        steps.append(chunk(finish="length" if k == n else None, usage=told))
    return [*steps, bill(size, n), DONE]


Script = Callable[[dict], Any]
"""From a request's body to its answer: steps, or an aiohttp response."""


class FakeServer:
    """``async with FakeServer(script) as server``.

    Attributes:
        bodies: every body, in order of arrival.
        most: most requests in progress at one time.
        arrived: released once for each request.
    """

    def __init__(self, script: Script = plain_answer) -> None:
        self.script = script
        self.bodies: list[dict] = []
        self.headers: list[Any] = []
        self.paths: list[str] = []
        self.most = self._now = 0
        self.gone = 0
        self.arrived = asyncio.Semaphore(0)

    async def __aenter__(self) -> FakeServer:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        self.paths.append(request.path)
        self._now += 1
        self.most = max(self.most, self._now)
        self.arrived.release()
        try:
            steps = self.script(body)
            if isinstance(steps, web.Response):
                return steps
            return await self._stream(request, steps)
        finally:
            self._now -= 1

    async def _stream(self, request: web.Request, steps: list) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for step in steps:
                if isinstance(step, bytes):
                    await response.write(step)
                elif isinstance(step, asyncio.Event):
                    await step.wait()
                elif step == DROP:
                    request.transport.close()
                    return response
                else:
                    await asyncio.sleep(step)
        except (asyncio.CancelledError, ConnectionError):
            self.gone += 1
            raise
        return response
