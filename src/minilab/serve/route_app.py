"""The proxy's HTTP surface: OpenAI's endpoints for clients, /health and /metrics for operators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

import aiohttp
from aiohttp import web

from minilab.serve import metrics
from minilab.serve.api_error import ApiError, shutting_down
from minilab.serve.fields import Fields
from minilab.serve.guards import bearer, openai_errors, wants_key
from minilab.serve.route_proxy import Proxy
from minilab.serve.route_replicas import Replicas

_CONNECT = 5.0


class RouteApi:
    """Handlers of one proxy; ``tenants`` maps API keys to salts."""

    def __init__(self, proxy: Proxy, tenants: Mapping[str, str]) -> None:
        self._proxy = proxy
        self._tenants = tenants

    def routes(self) -> list[web.RouteDef]:
        """Every path there is."""
        return [
            web.get("/health", self.health),
            web.get("/metrics", self.exposition),
            web.get("/v1/models", self.models),
            web.post("/v1/completions", self.generate),
            web.post("/v1/chat/completions", self.generate),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """200 while some replica can be reached and requests are taken."""
        self._check_open()
        if not any(view.up for view in self._proxy.fleet.views):
            raise ApiError(503, "no replica answers", code="no_replica")
        return web.Response()

    async def exposition(self, request: web.Request) -> web.Response:
        """For Prometheus."""
        replicas = self._proxy.replicas
        assert replicas is not None
        for url, rate in zip(replicas.urls, replicas.hit_rates, strict=True):
            if rate is not None:
                self._proxy.metrics.hit_rate.labels(url).set(rate)
        page = self._proxy.metrics.text(self._proxy.fleet)
        return web.Response(body=page, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def models(self, request: web.Request) -> web.Response:
        """Those of the first replica that answers."""
        replicas = self._proxy.replicas
        assert replicas is not None
        headers = self._proxy.headers(request)
        for url, view in zip(replicas.urls, self._proxy.fleet.views, strict=True):
            if view.up:
                with suppress(aiohttp.ClientError):
                    async with replicas.session.get(f"{url}/v1/models", headers=headers) as reply:
                        body = await reply.read()
                        return web.Response(
                            status=reply.status, body=body, content_type="application/json"
                        )
        raise ApiError(503, "no replica answers", code="no_replica")

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Both endpoints that generate."""
        self._check_open()
        fields = Fields.parse(await request.read())
        fields.flag("stream")
        own = fields.text("cache_salt")
        body = fields.values
        if self._tenants:
            salt = self._tenants[bearer(request)]
            # A tenant may divide its own cache further, and never reach into another's: with the
            # length in front, no two pairs of salts give one text.
            body["cache_salt"] = f"{len(salt)}:{salt}:{own or ''}"
        return await self._proxy.forward(request, body)

    def _check_open(self) -> None:
        if self._proxy.draining:
            raise shutting_down()


def make_route_app(
    proxy: Proxy,
    urls: Sequence[str],
    *,
    tenants: Mapping[str, str] | None = None,
    period: float = 1.0,
    max_body: int = 4 << 20,
) -> web.Application:
    """The application. With ``tenants``, only their keys may ask."""
    tenants = tenants or {}
    app = web.Application(
        client_max_size=max_body, middlewares=[openai_errors, wants_key(list(tenants))]
    )
    app.add_routes(RouteApi(proxy, tenants).routes())

    async def connections(app: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT)
        # No cookies: what one client's reply sets must not go out with another client's request.
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            proxy.replicas = Replicas(urls, session, proxy.tell)
            await proxy.replicas.probe_all()
            watching = asyncio.create_task(proxy.replicas.watch(period))
            yield
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            proxy.log.flush()

    app.cleanup_ctx.append(connections)
    return app
