"""Route: a proxy in a thread of this process, in front of given URLs."""

from __future__ import annotations

import asyncio
import io
import threading
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from minilab.core.routers import make_router
from minilab.serve.route_app import make_route_app
from minilab.serve.route_log import EventLog
from minilab.serve.route_metrics import RouteMetrics
from minilab.serve.route_proxy import Proxy
from minilab.serve.route_state import Fleet
from minilab.serve.runner import listen, run_app, url_of


class Route:
    """``events`` holds the event log."""

    def __init__(
        self,
        *urls: str,
        router: str = "prefix-load",
        tenants: dict[str, str] | None = None,
        period: float = 0.2,
    ) -> None:
        self.urls = urls
        self.events = io.StringIO()
        self._place = listen("127.0.0.1", 0)
        self.url = url_of(self._place)
        log = EventLog(self.events, router, 0, len(urls))
        fleet = Fleet(len(urls), make_router(router, 0))
        self.proxy = Proxy(fleet, log, RouteMetrics(urls), chars_per_token=1.0)
        self._app = make_route_app(self.proxy, urls, tenants=tenants, period=period)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)
        for _ in range(100):
            if httpx.get(f"{self.url}/metrics").status_code == 200:
                break

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()

        async def drain() -> None:
            await self.proxy.drain(5.0)

        self._ready.set()
        await run_app(self._app, self._place, drain, self.ended, asyncio.Event())

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self._thread.join(30)
        self._place.close()

    def written(self, path: Path) -> Path:
        """The event log as a file."""
        path.write_text(self.events.getvalue())
        return path

    def metrics(self) -> dict[str, float]:
        """Samples by name, replica (its index) and outcome."""
        found = {}
        for family in text_string_to_metric_families(httpx.get(f"{self.url}/metrics").text):
            for sample in family.samples:
                labels = dict(sample.labels)
                url = labels.pop("replica", None)
                parts = [sample.name.partition(":")[2], *labels.values()]
                if url is not None:
                    parts.append(str(self.urls.index(url)))
                found[":".join(parts)] = sample.value
        return found
