"""What the proxy adds to a request: latency through `minilab route` against the replica itself.

Eight clients at a time ask one replica, by turns directly and through the proxy; the difference of
the medians is the proxy's share. Two replicas are asked. ``paced`` sends a token every 10 ms and
computes nothing, as a server does whose work is on a GPU or on another machine: the difference is
the proxy's latency. ``tiny`` runs the tiny model on the same cores as proxy and clients: there the
difference also holds what the proxy's CPU time takes from the model. ``bare`` is the control: the
paced replica behind a relay of 20 lines that copies bytes and reads none of them, which is what one
more process and two more sockets cost on this machine. A network comes on top.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import common

STREAMS, EACH, TOKENS, PACE = 8, 6, 16, 0.010
TARGET = 0.002  # seconds


async def paced() -> None:
    """A replica that answers every request with tokens at a fixed pace, and has no model."""
    from aiohttp import web

    event = b'data: {"choices":[{"index":0,"text":" token","finish_reason":null}]}\n\n'

    async def generate(request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        clock = asyncio.get_running_loop()
        due = clock.time()
        for number in range(TOKENS):
            due += PACE
            await asyncio.sleep(due - clock.time())
            if not number:
                await answer.prepare(request)
            await answer.write(event)
        await answer.write_eof(b"data: [DONE]\n\n")
        return answer

    async def empty(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/v1/completions", generate)])
    app.add_routes([web.get("/health", empty), web.get("/metrics", empty)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    print(f"http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


async def bare(url: str) -> None:
    """The control: copies bytes to and from the replica at ``url``."""
    there = urlsplit(url)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection(there.hostname, there.port)
        await asyncio.gather(copy(reader, behind[1]), copy(behind[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


def start(*words: str) -> tuple[subprocess.Popen[str], str]:
    """A server and the address it listens on: a command of minilab's, or one of this file's."""
    command = ["-m", "minilab.cli.main", *words, "--port", "0"]
    if words[0] in ("paced", "bare"):
        command = [__file__, "--be", *words]
    process = subprocess.Popen(
        [sys.executable, *command],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
    assert found
    return process, found[0]


async def one(session: Any, url: str, number: int) -> tuple[float, float]:
    """Seconds to the first event and to the end of one stream."""
    body = {
        "prompt": f"{number:06d}",
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    began = time.perf_counter()
    first = 0.0
    async with session.post(f"{url}/v1/completions", data=json.dumps(body)) as reply:
        assert reply.status == 200, reply.status
        async for line in reply.content:
            if not first and line.startswith(b"data:"):
                first = time.perf_counter() - began
    return first, time.perf_counter() - began


async def client(session: Any, url: str, number: int) -> list[tuple[float, float]]:
    """One client's streams, one after the other, with pauses, so that clients fall out of step."""
    dice = random.Random(number)
    times = []
    for each in range(EACH):
        await asyncio.sleep(dice.uniform(0, 2 * PACE))
        times.append(await one(session, url, number + each))
    return times


async def measure(direct: str, proxied: str, rounds: int) -> dict[str, list[list[float]]]:
    """Per way and round, the medians of both times over the round's streams."""
    import aiohttp

    found: dict[str, list[list[float]]] = {"direct": [], "proxied": []}
    number = 0
    async with aiohttp.ClientSession() as session:
        for turn in range(rounds + 1):
            for way, url in (("direct", direct), ("proxied", proxied)):
                clients = [client(session, url, number + k * EACH) for k in range(STREAMS)]
                number += STREAMS * EACH
                times = [one for each in await asyncio.gather(*clients) for one in each]
                if turn:  # the first round warms up
                    found[way].append([median(column) for column in zip(*times, strict=True)])
    return found


def compare(replica: Sequence[str], way: str, rounds: int) -> dict[str, Any]:
    """Direct times of a replica, and what ``way`` ("route" or "bare") adds to them."""
    server, direct = start(*replica)
    proxy, proxied = start(way, direct)
    try:
        found = asyncio.run(measure(direct, proxied, rounds))
    finally:
        proxy.terminate()
        server.terminate()
        proxy.wait(30)
        server.wait(30)
    columns = list(enumerate(("first_event", "whole")))
    both = list(zip(found["proxied"], found["direct"], strict=True))
    return {
        "direct_seconds": {
            name: median(row[at] for row in found["direct"]) for at, name in columns
        },
        "added_seconds": {
            name: common.spread([p[at] - d[at] for p, d in both]) for at, name in columns
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail where the target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--be", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        asyncio.run(paced() if options.be == ["paced"] else bare(options.be[1]))
    result: dict[str, Any] = {
        "what": f"{STREAMS} clients, streams of {TOKENS} tokens, one replica, loopback",
        "host": common.host(),
        "rounds": options.rounds,
        "target_p50_seconds": TARGET,
        "paced": compare(["paced"], "route", options.rounds),
        "bare": compare(["paced"], "bare", options.rounds),
        "tiny": compare(["serve", "tiny"], "route", options.rounds),
    }
    for name in ("paced", "bare", "tiny"):
        for part, spread in result[name]["added_seconds"].items():
            print(f"{name:6} {part:12} {spread['median'] * 1e3:+.2f} ms")
    met = all(spread["median"] < TARGET for spread in result["paced"]["added_seconds"].values())
    print(f"wanted below {TARGET * 1e3:g} ms: {common.verdict(met)}")
    if not options.no_write:
        common.write("route_overhead", result)
    return 0 if met or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
