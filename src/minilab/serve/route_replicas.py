"""Replicas: the proxy's connections to them, their health and their figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import aiohttp

from minilab.judge.advisor.exposition import read_scrape

_PROBE = aiohttp.ClientTimeout(total=5.0)
_READ = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:cache_config_info",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:kv_cache_usage_perc",
)

Tell = Callable[[dict[str, Any]], object]


class Replicas:
    """The servers behind a proxy, by index.

    ``tell`` is called with an event ("up", "scrape") whenever something is learnt.

    Attributes:
        urls: their addresses.
        hit_rates: hits / queries of their prefix caches, None where unknown.
    """

    def __init__(self, urls: Sequence[str], session: aiohttp.ClientSession, tell: Tell) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self.session = session
        self.hit_rates: list[float | None] = [None] * len(urls)
        self._tell = tell
        self._up = [False] * len(urls)

    async def watch(self, period: float) -> None:
        """Probe all of them every ``period`` seconds, for ever."""
        while True:
            await self.probe_all()
            await asyncio.sleep(period)

    async def probe_all(self) -> None:
        """Probe all of them once, side by side."""
        await asyncio.gather(*(self._probe(index) for index in range(len(self.urls))))

    def lost(self, index: int) -> None:
        """A connection to it failed: it is down until a probe says otherwise."""
        self._set_up(index, False)

    async def _probe(self, index: int) -> None:
        url = self.urls[index]
        try:
            async with self.session.get(f"{url}/health", timeout=_PROBE) as response:
                healthy = response.status == 200
        except (aiohttp.ClientError, asyncio.TimeoutError):
            healthy = False
        self._set_up(index, healthy)
        if healthy:
            with suppress(aiohttp.ClientError, asyncio.TimeoutError):
                async with self.session.get(f"{url}/metrics", timeout=_PROBE) as response:
                    self._read(index, await response.text())

    def _read(self, index: int, page: str) -> None:
        # A page has hundreds of samples, and reading all of them would hold up the streams.
        scrape = read_scrape("\n".join(x for x in page.split("\n") if x.startswith(_READ)))
        running = scrape.total("vllm:num_requests_running") or 0.0
        waiting = scrape.total("vllm:num_requests_waiting") or 0.0
        blocks = scrape.label("vllm:cache_config_info", "num_gpu_blocks") or "0"
        queries = scrape.total("vllm:prefix_cache_queries_total")
        if queries:
            self.hit_rates[index] = (scrape.total("vllm:prefix_cache_hits_total") or 0) / queries
        self._tell(
            {
                "event": "scrape",
                "replica": index,
                "load": round(running + waiting),
                "usage": scrape.total("vllm:kv_cache_usage_perc") or 0.0,
                "blocks": int(blocks) if blocks.isdigit() else 0,
            }
        )

    def _set_up(self, index: int, up: bool) -> None:
        if up != self._up[index]:
            self._up[index] = up
            self._tell({"event": "up", "replica": index, "up": up})
