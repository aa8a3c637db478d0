"""Clients that go away or do not read: their blocks come back, and others do not wait for them."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

import httpx
import pytest
from serving import wait_for

from minilab.serve.limits import ServeLimits

ASKED = {
    "prompt": "one two three",
    "max_tokens": 600,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},  # long events
}


def post(peer: socket.socket, fields: dict[str, object]) -> None:
    """A request by hand, so that the test decides what is read, and when."""
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    peer.sendall(head.encode() + body)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_goes_away_gives_its_blocks_back(make_site, stream) -> None:
    site = make_site()
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        post(peer, ASKED if stream else {**ASKED, "stream": False, "stream_options": None})
        wait_for(lambda: site.llm.scheduler.num_running == 1)
        if stream:
            assert peer.recv(100).startswith(b"HTTP/1.1 200")
    wait_for(lambda: site.metrics()["vllm:request_success_total:abort"] == 1)
    site.nothing_left()
    counted = site.metrics()
    assert counted["vllm:num_requests_running"] == 0
    assert counted["vllm:kv_cache_usage_perc"] == 0
    assert 0 < counted["vllm:generation_tokens_total"] < 600


def test_a_client_that_goes_away_in_the_queue_is_forgotten(make_site) -> None:
    site = make_site(scheduler={"max_num_seqs": 1})
    with socket.create_connection(("127.0.0.1", site.port)) as first:
        post(first, ASKED)
        wait_for(lambda: site.llm.scheduler.num_running == 1)
        with socket.create_connection(("127.0.0.1", site.port)) as second:
            post(second, ASKED)
            wait_for(lambda: site.llm.scheduler.num_waiting == 1)
        wait_for(lambda: site.llm.scheduler.num_waiting == 0)
        assert site.llm.scheduler.num_running == 1
    site.nothing_left()


def test_a_reader_that_stalls_is_dropped_and_holds_nobody_up(make_site) -> None:
    """Its stream fills every buffer on the way; another stream runs to its end meanwhile."""
    site = make_site(limits=ServeLimits(stall_timeout=1.0), sndbuf=4096)
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", site.port))
        post(peer, ASKED)
        other = httpx.post(f"{site.url}/v1/completions", json=ASKED, timeout=60)
        assert other.text.endswith("data: [DONE]\n\n")
        site.nothing_left()  # the engine is done with both, though one has not been read
        time.sleep(2.0)
        peer.settimeout(10)
        read = b""
        with suppress(ConnectionResetError):
            while piece := peer.recv(65536):
                read += piece
        assert read.startswith(b"HTTP/1.1 200") and b"[DONE]" not in read


def test_a_reader_that_is_only_slow_gets_every_token(make_site) -> None:
    """What waits for it becomes larger pieces, not lost ones."""
    site = make_site(sndbuf=4096)
    alone = httpx.post(f"{site.url}/v1/completions", json=ASKED, timeout=60).text
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", site.port))
        post(peer, ASKED)
        site.nothing_left()
        peer.settimeout(10)
        read = b""
        while b"[DONE]" not in read:
            read += peer.recv(4096)
    events = pieces(read.decode(errors="strict").partition("\r\n\r\n")[2])
    assert text(events) == text(pieces(alone))
    assert events[-1]["usage"]["completion_tokens"] == 600
    assert len(events) < 600  # some pieces hold several tokens


def pieces(body: str) -> list[dict[str, object]]:
    """The events of a response, chunked or not."""
    lines = [line for line in body.splitlines() if line.startswith("data: {")]
    return [json.loads(line[6:]) for line in lines]


def text(events: list[dict[str, object]]) -> str:
    return "".join(event["choices"][0]["text"] for event in events if event["choices"])  # type: ignore[index]
