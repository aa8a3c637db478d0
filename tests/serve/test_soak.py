"""A minute of everything at once: 200 streams, aborts, nonsense, full queue; then SIGTERM.

What it is for: leaks of blocks, memory or requests that no single request shows, and texts that get
mixed up between clients.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import time
from collections import Counter

import aiohttp
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served_process import Process

STREAMS = 200
SECONDS = 60.0
# oneDNN keeps a compiled kernel for each number of rows that a step ever had (about half a megabyte
# each). With a small budget all of them are seen early, and what grows after that is a leak.
SIZES = (
    *("--max-num-seqs", "64", "--max-num-batched-tokens", "96"),
    *("--max-queue", "96", "--kv-blocks", "120"),
)
PROMPTS = [f"{number}: " + "abcdefghij"[number % 10] * (number * 3) for number in range(24)]


class Crowd:
    """Clients that do as real ones do, and count what became of each request."""

    def __init__(self, url: str, expected: dict[str, str]) -> None:
        self.url = url
        self.expected = expected
        self.counts: Counter[str] = Counter()
        self.mixed: list[str] = []
        self.over = asyncio.Event()

    async def client(self, session: aiohttp.ClientSession, seed: int) -> None:
        dice = random.Random(seed)
        while not self.over.is_set():
            prompt = dice.choice(PROMPTS)
            what = dice.choices(("read", "whole", "leave", "nonsense"), (6, 2, 1, 1))[0]
            self.counts["sent"] += 1
            try:
                end = await getattr(self, f"_{what}")(session, prompt, dice)
            except aiohttp.ClientError as error:
                end = f"broken: {type(error).__name__}"
            self.counts[end] += 1
            if end == "429":
                await asyncio.sleep(dice.uniform(0.05, 0.5))

    async def _read(self, session: aiohttp.ClientSession, prompt: str, dice: random.Random) -> str:
        async with self._post(session, prompt, stream=True) as response:
            if response.status != 200:
                return str(response.status)
            text = ""
            async for line in response.content:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        return str(event["error"]["code"])
                    text += event["choices"][0]["text"]
            return self._judge(prompt, text) if line == b"\n" else "cut"

    async def _whole(self, session: aiohttp.ClientSession, prompt: str, dice: random.Random) -> str:
        async with self._post(session, prompt, stream=False) as response:
            if response.status != 200:
                return str(response.status)
            return self._judge(prompt, (await response.json())["choices"][0]["text"])

    async def _leave(self, session: aiohttp.ClientSession, prompt: str, dice: random.Random) -> str:
        async with self._post(session, prompt, stream=True) as response:
            if response.status != 200:
                return str(response.status)
            for _ in range(dice.randint(0, 12)):
                await response.content.readline()
            response.close()
            return "left"

    async def _nonsense(self, session: aiohttp.ClientSession, prompt: str, dice: object) -> str:
        async with session.post(f"{self.url}/v1/completions", data=b'{"prompt": "\xff') as response:
            return str(response.status)

    def _post(self, session: aiohttp.ClientSession, prompt: str, stream: bool):
        return session.post(f"{self.url}/v1/completions", json={**body(prompt), "stream": stream})

    def _judge(self, prompt: str, text: str) -> str:
        if text != self.expected[prompt]:
            self.mixed.append(prompt)
        return "finished"


def body(prompt: str) -> dict[str, object]:
    salt = f"tenant-{len(prompt) % 3}"
    return {
        "prompt": prompt,
        "max_tokens": 24,
        "temperature": 0,
        "ignore_eos": True,
        "cache_salt": salt,
    }


def metrics(url: str) -> dict[str, float]:
    """Samples by name and reason."""
    found = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text):
        for sample in family.samples:
            reason = sample.labels.get("finished_reason") or sample.labels.get("reason")
            found[f"{sample.name}:{reason}" if reason else sample.name] = sample.value
    return found


async def load(served: Process, expected: dict[str, str]) -> tuple[Crowd, list[float]]:
    """The minute; returns the crowd and the server's memory over its last two fifths (bytes)."""
    crowd = Crowd(served.url, expected)
    memory = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = [asyncio.create_task(crowd.client(session, k)) for k in range(STREAMS)]
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            await asyncio.sleep(SECONDS / 20)
            async with session.get(f"{served.url}/metrics") as response:
                text = await response.text()
            line = next(x for x in text.splitlines() if x.startswith("process_resident"))
            memory.append(float(line.split()[1]))
        crowd.over.set()
        await asyncio.gather(*clients)
    return crowd, memory[len(memory) * 3 // 5 :]


@pytest.mark.slow
def test_two_hundred_streams_for_a_minute(tmp_path) -> None:
    served = Process(*SIZES)
    try:
        expected = {}
        for prompt in PROMPTS:
            reply = httpx.post(f"{served.url}/v1/completions", json=body(prompt), timeout=30)
            expected[prompt] = reply.json()["choices"][0]["text"]
        before = metrics(served.url)
        crowd, memory = asyncio.run(load(served, expected))
        counts = crowd.counts
        print(dict(counts), [round(size / 2**20) for size in memory])
        ends = {"finished", "429", "left", "400"}
        assert set(counts) <= {"sent", *ends}
        assert counts["sent"] == sum(counts[end] for end in ends)
        assert all(counts[end] > 20 for end in ends)
        assert not crowd.mixed, f"{len(crowd.mixed)} of {counts['finished']} have another's text"
        after = settled(served.url)
        assert after["vllm:kv_cache_usage_perc"] == after["vllm:num_requests_running"] == 0
        assert after["vllm:num_requests_waiting"] == 0
        done = [f"vllm:request_success_total:{reason}" for reason in ("stop", "length", "abort")]
        accepted = sum(after[name] - before[name] for name in done)
        assert accepted == counts["finished"] + counts["left"]
        assert after["vllm:request_success_total:error"] == 0
        assert after["vllm:admission_rejections_total:max_num_queued_reqs"] == counts["429"]
        assert after["vllm:num_preemptions_total"] > 0  # the pool was tight
        # Coarse. What a request leaves behind is counted exactly in test_limits.py.
        assert steady_growth(memory) < 12 << 20, "memory grows"
        assert "Traceback" not in served.said
    finally:
        served.process.kill()


def steady_growth(memory: list[float]) -> float:
    """Growth without its largest single step, in bytes: an allocator may take one more arena, and
    a leak of two kilobytes a request grows by some megabytes between any two samples."""
    steps = [after - before for before, after in itertools.pairwise(memory)]
    assert max(steps) < 64 << 20, "no arena is that large"
    return sum(steps) - max(steps)


def settled(url: str) -> dict[str, float]:
    """Metrics once nothing runs: aborts reach the engine a moment later."""
    for _ in range(100):
        found = metrics(url)
        if not found["vllm:num_requests_running"] and not found["vllm:num_requests_waiting"]:
            return found
        time.sleep(0.1)
    raise AssertionError("requests are left over")


@pytest.mark.slow
def test_sigterm_in_the_middle_of_load() -> None:
    """Every one of 200 streams ends with its text, or with a word why not; the process with 0."""

    async def storm() -> Counter[str]:
        crowd = Crowd(served.url, {})
        crowd._judge = lambda prompt, text: "finished"  # type: ignore[method-assign]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            tasks = [
                asyncio.create_task(long_read(crowd, session, PROMPTS[k % 24], 4 + k * k // 40))
                for k in range(STREAMS)
            ]
            while sum(task.done() for task in tasks) < 10:
                await asyncio.sleep(0.01)
            served.process.send_signal(signal.SIGTERM)
            return Counter(await asyncio.gather(*tasks))

    served = Process("--max-num-seqs", "64", "--max-queue", "200", "--drain-timeout", "1")
    try:
        ends = asyncio.run(storm())
        print(dict(ends))
        assert sum(ends.values()) == STREAMS
        assert set(ends) == {"finished", "shutting_down"}
        assert served.end()[0] == 0
    finally:
        served.process.kill()


async def long_read(crowd: Crowd, session: aiohttp.ClientSession, prompt: str, tokens: int) -> str:
    """How one long stream ends; 503 before the first event is a clear word too."""
    asked = {**body(prompt), "max_tokens": tokens, "stream": True}
    async with session.post(f"{crowd.url}/v1/completions", json=asked) as response:
        if response.status != 200:
            return str((await response.json())["error"]["code"])
        lines = [line async for line in response.content if line.strip()]
    assert lines[-1] == b"data: [DONE]\n"
    last = json.loads(lines[-2][6:])
    return str(last["error"]["code"]) if "error" in last else "finished"
