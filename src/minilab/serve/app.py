"""The HTTP surface: routes, and every error in OpenAI's form."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from aiohttp import web

from minilab.serve import metrics
from minilab.serve.api_error import ApiError
from minilab.serve.event_stream import EventStream
from minilab.serve.fields import Fields
from minilab.serve.guards import openai_errors, wants_key
from minilab.serve.replies import ChatReply, CompletionReply, Reply, Usage
from minilab.serve.request_form import Chat, Completion, read_chat, read_completion
from minilab.serve.service import Running, Service
from minilab.serve.streams import stream_reply


class Api:
    """Handlers of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Every path there is."""
        return [
            web.get("/health", self.health),
            web.get("/metrics", self.exposition),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{name:.+}", self.one_model),
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.chat),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """200 while requests are taken, 503 when draining or broken."""
        self._service.check_open()
        return web.Response()

    async def exposition(self, request: web.Request) -> web.Response:
        """For Prometheus."""
        headers = {"Content-Type": metrics.CONTENT_TYPE}
        return web.Response(body=self._service.exposition(), headers=headers)

    async def models(self, request: web.Request) -> web.Response:
        """The one model."""
        return web.json_response({"object": "list", "data": [self._model()]})

    async def one_model(self, request: web.Request) -> web.Response:
        """The one model, by name."""
        self._service.check_model(request.match_info["name"])
        return web.json_response(self._model())

    def _model(self) -> dict[str, object]:
        return {
            "id": self._service.model,
            "object": "model",
            "created": self._service.created,
            "owned_by": "minilab",
            "max_model_len": self._service.max_model_len,
        }

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """``/v1/completions``."""
        arrival = time.perf_counter()
        form = read_completion(await self._fields(request))
        return await self._answer(request, form, CompletionReply(self._service.model), arrival)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``/v1/chat/completions``."""
        arrival = time.perf_counter()
        form = read_chat(await self._fields(request))
        return await self._answer(request, form, ChatReply(self._service.model), arrival)

    async def _fields(self, request: web.Request) -> Fields:
        seconds = self._service.limits.body_timeout
        try:
            body = await asyncio.wait_for(request.read(), seconds)
        except asyncio.TimeoutError:
            told = f"the body did not come within {seconds:g} s; send it faster"
            raise ApiError(408, told, code="body_timeout") from None
        return Fields.parse(body)

    async def _answer(
        self, request: web.Request, form: Completion | Chat, reply: Reply, arrival: float
    ) -> web.StreamResponse:
        self._service.check_model(form.model)
        headers = {"X-Request-Id": request.headers.get("X-Request-Id", reply.id)}
        async with self._service.generate(form, arrival) as running:
            if not form.stream:
                return web.json_response(await _collect(reply, running), headers=headers)
            stall = self._service.limits.stall_timeout
            stream = EventStream(request, headers, stall)
            await stream_reply(stream, reply, running, form.usage)
            return await stream.close()


async def _collect(reply: Reply, running: Running) -> dict[str, object]:
    """The whole reply of a request that is not streamed."""
    texts: list[str] = []
    tokens = 0
    while True:
        piece = await running.channel.next()
        texts.append(piece.text)
        tokens += piece.tokens
        if piece.reason is not None:
            usage = Usage(running.prompt_tokens, tokens, piece.cached)
            return reply.whole("".join(texts), piece.reason, usage)


def make_app(service: Service, api_keys: Sequence[str] = ()) -> web.Application:
    """The application; with ``api_keys``, what is under /v1/ wants one of them."""
    app = web.Application(
        client_max_size=service.limits.max_body,
        middlewares=[openai_errors, wants_key(api_keys)],
    )
    app.add_routes(Api(service).routes())
    return app
