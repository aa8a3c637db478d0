"""500 streams through the proxy over three replicas, one of which is killed and comes back.

What it is for: texts lost, doubled or mixed up when placements fail and are tried again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path

import aiohttp
import httpx
import pytest
from routing import Route
from served_process import Process

from minilab.serve import route_log

STREAMS = 500
SECONDS = 24.0
SIZES = ("--max-num-seqs", "64", "--max-num-batched-tokens", "256", "--max-queue", "300")
PROMPTS = [f"{number}: " + "abcdefghij"[number % 10] * (number * 3) for number in range(24)]
TOKENS = 96


def body(prompt: str) -> dict[str, object]:
    return {
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class Crowd:
    """Clients that count what became of each stream, and keep every reply's id."""

    def __init__(self, url: str, expected: dict[str, str]) -> None:
        self.url, self.expected = url, expected
        self.counts: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.mixed: list[tuple[str, str]] = []
        self.over = asyncio.Event()

    async def client(self, session: aiohttp.ClientSession, seed: int) -> None:
        dice = random.Random(seed)
        while not self.over.is_set():
            self.counts["sent"] += 1
            end = await self.stream(session, dice.choice(PROMPTS))
            self.counts[end] += 1
            if end != "finished":
                await asyncio.sleep(dice.uniform(0.1, 0.5))

    async def stream(self, session: aiohttp.ClientSession, prompt: str) -> str:
        """One stream: "finished", or the code of the error that it ended with."""
        async with session.post(f"{self.url}/v1/completions", json=body(prompt)) as reply:
            if reply.status != 200:
                return str((await reply.json())["error"]["code"])
            lines = [line async for line in reply.content if line.strip()]
        assert lines.pop() == b"data: [DONE]\n"
        events = [json.loads(line[6:]) for line in lines]
        text, ids = "", set()
        for event in events:
            if "error" in event:
                return str(event["error"]["code"])
            ids.add(event["id"])
            text += "".join(choice["text"] for choice in event["choices"])
        (name,) = ids
        self.ids[name] += 1
        assert events[-1]["usage"]["completion_tokens"] == TOKENS
        if text != self.expected[prompt]:
            self.mixed.append((prompt, text))
        return "finished"


async def storm(route: Route, expected: dict[str, str], replicas: list[Process]) -> Crowd:
    """The load; a third of the way in, replica 0 is killed, and later started again."""
    crowd = Crowd(route.url, expected)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [asyncio.create_task(crowd.client(session, k)) for k in range(STREAMS)]
        begun = time.monotonic()
        await asyncio.sleep(SECONDS / 4)
        replicas[0].process.kill()
        replicas[0].process.wait()
        await asyncio.sleep(1.0)
        port = replicas[0].url.rpartition(":")[2]
        replicas[0] = await asyncio.to_thread(Process, *SIZES, "--port", port)
        await asyncio.sleep(max(SECONDS / 3, SECONDS - (time.monotonic() - begun)))
        crowd.over.set()
        await asyncio.gather(*clients)
    return crowd


@pytest.mark.slow
def test_a_replica_dies_and_returns_under_five_hundred_streams(tmp_path: Path) -> None:
    replicas = [Process(*SIZES) for _ in range(3)]
    route = None
    try:
        expected = {}
        for prompt in PROMPTS:
            asked = {**body(prompt), "stream": False, "stream_options": None}
            reply = httpx.post(f"{replicas[1].url}/v1/completions", json=asked, timeout=30)
            expected[prompt] = reply.json()["choices"][0]["text"]
        route = Route(*[replica.url for replica in replicas], router="prefix-load")
        crowd = asyncio.run(storm(route, expected, replicas))
        counts = crowd.counts
        found = route.metrics()
        print(dict(counts), {k: v for k, v in found.items() if "requests_total" in k})
        clear = {"finished", "replica_lost", "queue_full", "no_replica"}
        assert set(counts) <= {"sent", *clear}
        assert counts["sent"] == sum(counts[end] for end in clear)
        assert counts["finished"] > 100 and counts["replica_lost"] > 0
        assert not crowd.mixed, f"{len(crowd.mixed)} of {counts['finished']} have another's text"
        assert set(crowd.ids.values()) == {1}, "a reply reached two clients"
        assert found["retries_total"] > 0 and found["requests_total:lost:0"] > 0
        done = sum(found[f"requests_total:done:{k}"] for k in range(3))
        assert done >= counts["finished"] and all(found[f"replica_up:{k}"] for k in range(3))
        after = httpx.get(f"{replicas[0].url}/metrics").text
        served = [line for line in after.splitlines() if 'finished_reason="length"' in line]
        assert float(served[0].split()[1]) > 0, "the replica that came back got no request"
        assert all(view.in_flight == 0 for view in route.proxy.fleet.views)
        choices = route_log.replay(route.written(tmp_path / "events.jsonl"))
        assert len(choices) >= counts["sent"]
        assert all(choice.live == choice.again for choice in choices)
    finally:
        if route is not None:
            route.stop()
        for replica in replicas:
            replica.process.kill()
