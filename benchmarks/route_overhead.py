"""What the proxy adds to a request: latency through `minilab route` against the replica itself.

Eight clients at a time ask one replica of the tiny model, by turns directly and through the proxy;
the difference of the medians is the proxy's share. Both run on this machine, so they also compete
for its cores: on two machines it would be less, and a network would come on top.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from statistics import median
from typing import Any

import common

STREAMS, TOKENS = 8, 16
TARGET = 0.002  # seconds


def start(*words: str) -> tuple[subprocess.Popen[str], str]:
    """A command of minilab's and the address it listens on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "minilab.cli.main", *words, "--port", "0"],
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


async def measure(direct: str, proxied: str, rounds: int) -> dict[str, list[list[float]]]:
    """Per way and round, the medians of both times over the round's streams."""
    import aiohttp

    found: dict[str, list[list[float]]] = {"direct": [], "proxied": []}
    number = 0
    async with aiohttp.ClientSession() as session:
        for turn in range(rounds + 1):
            for way, url in (("direct", direct), ("proxied", proxied)):
                times: list[tuple[float, float]] = []
                for _ in range(6):
                    batch = [one(session, url, number + k) for k in range(STREAMS)]
                    number += STREAMS
                    times += await asyncio.gather(*batch)
                if turn:  # the first round warms up
                    found[way].append([median(column) for column in zip(*times, strict=True)])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail where the target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    server, direct = start("serve", "tiny")
    proxy, proxied = start("route", direct)
    try:
        found = asyncio.run(measure(direct, proxied, options.rounds))
    finally:
        proxy.terminate()
        server.terminate()
        proxy.wait(30)
        server.wait(30)
    added = {
        name: [p[at] - d[at] for p, d in zip(found["proxied"], found["direct"], strict=True)]
        for at, name in enumerate(("first_event", "whole"))
    }
    result = {
        "what": f"{STREAMS} streams of {TOKENS} tokens, one replica of the tiny model, loopback",
        "host": common.host(),
        "rounds": options.rounds,
        "direct_seconds": {
            name: median(row[at] for row in found["direct"])
            for at, name in enumerate(("first_event", "whole"))
        },
        "added_seconds": {name: common.spread(values) for name, values in added.items()},
        "target_p50_seconds": TARGET,
    }
    got = {name: median(values) for name, values in added.items()}
    met = max(got.values()) < TARGET
    print(
        ", ".join(f"{name} {value * 1e3:+.2f} ms" for name, value in got.items()),
        f"(wanted below {TARGET * 1e3:g} ms: {common.verdict(met)})",
    )
    if not options.no_write:
        common.write("route_overhead", result)
    return 0 if met or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
