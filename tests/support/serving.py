"""Site: a server of the tiny model in a thread of this process, on a port of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.load import load_llm
from minilab.engine.spec.config import SpeculativeConfig
from minilab.serve.app import make_app
from minilab.serve.limits import ServeLimits
from minilab.serve.runner import listen, run_app, url_of
from minilab.serve.service import Service

LABELS = ("finished_reason", "reason", "position")


class Site:
    """A server in a thread. ``gate`` closed holds the engine between two steps."""

    def __init__(
        self,
        limits: ServeLimits | None = None,
        keys: tuple[str, ...] = (),
        sndbuf: int | None = None,
        scheduler: dict[str, Any] | None = None,
        speculative: str | None = None,
        **more: Any,
    ) -> None:
        sizes = {"num_blocks": 256, "max_num_batched_tokens": 512, "max_num_seqs": 16}
        self.llm: LLM = load_llm("tiny", SchedulerConfig(**{**sizes, **(scheduler or {})}))
        if speculative is not None:
            self.llm.use_speculation(SpeculativeConfig.parse(speculative).speculation(self.llm))
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Event()  # the engine stands at the closed gate
        real = self.llm.step

        def step() -> bool:
            if not self.gate.is_set():
                self.held.set()
                self.gate.wait(60)
            return real()

        self.llm.step = step  # type: ignore[method-assign]
        self._limits, self._keys, self._more = limits, keys, more
        self._place = listen("127.0.0.1", 0)
        if sndbuf is not None:
            self._place.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        self.url = url_of(self._place)
        self.port = int(self.url.rpartition(":")[2])
        self.log: Any = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.service = Service(self.llm, "tiny", self._limits, **self._more)

        async def drain() -> None:
            await self.service.drain(self.service.limits.drain_timeout)

        app = make_app(self.service, self._keys)
        self._ready.set()
        await run_app(app, self._place, drain, self.service.ended, asyncio.Event())
        self.log = self.service.close()

    def one_step(self) -> None:
        """Let the engine, which stands at the gate, do one step."""
        self.held.clear()
        self.gate.set()
        self.gate.clear()
        assert self.held.wait(10)

    def stop(self) -> None:
        self.gate.set()
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.service.ended.set)
        self._thread.join(30)
        self._place.close()
        assert not self._thread.is_alive(), "the server does not end"

    def openai(self, key: str = "any") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)

    def post(self, path: str, content: Any, **more: Any) -> httpx.Response:
        """Raw bytes, or an object as JSON."""
        body = {"content": content} if isinstance(content, bytes) else {"json": content}
        return httpx.post(f"{self.url}{path}", **body, **more, timeout=60)

    def metrics(self) -> dict[str, float]:
        """Samples without labels, and with their one label of interest."""
        from prometheus_client.parser import text_string_to_metric_families

        text = httpx.get(f"{self.url}/metrics").text
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if "le" in sample.labels:
                    continue
                more = [v for k, v in sample.labels.items() if k in LABELS]
                found[":".join([sample.name, *more])] = sample.value
        return found

    def nothing_left(self) -> None:
        """No request, no block, no text and no channel stays behind."""
        pool, texts = self.llm.scheduler.pool, self.llm.executor.texts
        wait_for(lambda: not self.service.in_flight and not texts, 30)
        assert pool.used == 0
        assert not self.llm.executor.sampler._generators
        pool.check([])


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Come back as soon as it holds; fail if it never does."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"it did not come about in {seconds} s")
