"""The proxy: replies as from the replica itself, placement, retries, tenants, the event log."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from routing import Route
from serving import Site, wait_for

from minilab.cli.main import main
from minilab.facts.errors import InputError
from minilab.serve import route_log
from minilab.serve.keys import tenants
from minilab.serve.route_text import segments

ASKED = {"prompt": "one two three", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Site]]:
    made = [Site() for _ in range(2)]
    yield made
    for site in made:
        site.stop()


@pytest.fixture
def make_route() -> Iterator[object]:
    made: list[Route] = []

    def make(*urls: str, **more: object) -> Route:
        made.append(Route(*urls, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for route in made:
        route.stop()


def post(url: str, body: dict[str, object], **more: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=body, timeout=60, **more)  # type: ignore[arg-type]


def test_a_client_sees_no_difference(replicas, make_route) -> None:
    """Texts, streams, usage and errors pass through whole."""
    route = make_route(*[site.url for site in replicas])
    direct, proxied = (
        openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        for url in (replicas[0].url, route.url)
    )
    asked = {"model": "tiny", "prompt": "hello", "max_tokens": 12, "temperature": 0}
    for client in (direct, proxied):
        assert [model.id for model in client.models.list()] == ["tiny"]
    whole = [c.completions.create(**asked).choices[0].text for c in (direct, proxied)]
    assert whole[0] == whole[1]
    options = {"include_usage": True}
    events = list(proxied.completions.create(**asked, stream=True, stream_options=options))
    assert "".join(e.choices[0].text for e in events if e.choices) == whole[0]
    assert events[-1].usage.prompt_tokens == 5
    messages = [{"role": "user", "content": "hello"}]
    chats = [
        c.chat.completions.create(model="tiny", messages=messages, max_tokens=5, temperature=0)
        for c in (direct, proxied)
    ]
    assert chats[0].choices[0].message.content == chats[1].choices[0].message.content
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        proxied.completions.create(**{**asked, "model": "other"})
    with pytest.raises(openai.BadRequestError, match="n is 2"):
        proxied.completions.create(**asked, n=2)
    assert httpx.post(f"{route.url}/v1/completions", content=b"\xff").status_code == 400


def test_a_prompt_goes_where_its_prefix_is(replicas, make_route) -> None:
    """And the proxy's guess of hits is what the replica then reports."""
    route = make_route(*[site.url for site in replicas], router="longest-prefix")
    for turn in range(3):
        for name in "ab":
            post(route.url, {**ASKED, "prompt": f"{name}" * 64 + f"turn {turn}"})
    lines = [json.loads(line) for line in route.events.getvalue().splitlines()[1:]]
    chosen = [line["choice"] for line in lines if line["event"] == "arrival"]
    assert chosen[0::2] == [chosen[0]] * 3 and chosen[1::2] == [chosen[1]] * 3
    found = route.metrics()
    expected = sum(found.get(f"expected_hit_tokens_total:{k}", 0) for k in (0, 1))
    assert expected == 4 * 64


def test_load_is_spread(replicas, make_route) -> None:
    """Eight at once on two replicas: four each, by the proxy's own count of what is under way."""
    route = make_route(*[site.url for site in replicas], router="least-load", period=60.0)
    for site in replicas:
        site.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        inside = [pool.submit(post, route.url, {**ASKED, "prompt": f"{k} {k}"}) for k in range(8)]
        wait_for(lambda: sum(site.service.in_flight for site in replicas) == 8)
        spread = [site.service.in_flight for site in replicas]
        for site in replicas:
            site.gate.set()
        assert {reply.result().status_code for reply in inside} == {200}
    assert spread == [4, 4]


def test_a_replica_that_is_gone_is_passed_over(replicas, make_route) -> None:
    """Before the first token nothing is lost: the client gets its text from the other one."""
    with socket.socket() as dead:  # bound, not listening: connections are refused
        dead.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{dead.getsockname()[1]}"
        route = make_route(gone, replicas[0].url, router="round-robin")
        assert {post(route.url, ASKED).status_code for _ in range(4)} == {200}
        found = route.metrics()
        assert (found["replica_up:0"], found["replica_up:1"]) == (0, 1)
        assert found["requests_total:done:1"] == 4
    only = make_route(gone)
    refused = post(only.url, ASKED)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "no_replica"
    assert httpx.get(f"{only.url}/health").status_code == 503


class Breaking(threading.Thread):
    """A replica that is healthy and breaks off after ``sent``."""

    def __init__(self, sent: bytes) -> None:
        super().__init__(daemon=True)
        self.sent = sent
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            with peer:
                if peer.recv(65536).startswith(b"GET"):
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                else:
                    peer.sendall(self.sent)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"text":"half"}]}\n\n'


def test_a_stream_that_breaks_off_ends_with_an_error_event(make_route) -> None:
    """And with whole events: what was half sent is not passed on."""
    half = EVENT + b'data: {"cho'
    broken = Breaking(HEAD + b"%x\r\n" % len(half) + half + b"\r\n")
    route = make_route(broken.url)
    text = post(route.url, {**ASKED, "stream": True}).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert json.loads(events[0])["choices"][0]["text"] == "half"
    assert json.loads(events[1])["error"]["code"] == "replica_lost"
    assert events[2:] == ["[DONE]"]


@pytest.mark.parametrize("sent", [b"", HEAD], ids=["no-answer", "head-alone"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_what_breaks_before_the_first_event_is_tried_elsewhere(
    replicas, make_route, sent, stream
) -> None:
    route = make_route(Breaking(sent).url, replicas[0].url, router="round-robin", period=60.0)
    reply = post(route.url, {**ASKED, "stream": stream})
    assert reply.status_code == 200 and "replica_lost" not in reply.text
    found = route.metrics()
    assert found["retries_total"] == 1
    assert found["requests_total:unreachable:0"] == found["requests_total:done:1"] == 1


def test_a_client_that_leaves_frees_the_replica(replicas, make_route) -> None:
    route = make_route(replicas[0].url)
    body = json.dumps({**ASKED, "max_tokens": 1500, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", int(route.url.rpartition(":")[2]))) as peer:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall(head.encode() + body)
        assert peer.recv(100).startswith(b"HTTP/1.1 200")
    replicas[0].nothing_left()
    wait_for(lambda: not route.proxy.in_flight)
    assert route.metrics()["requests_total:left:0"] == 1
    assert route.proxy.fleet.views[0].in_flight == 0


def test_tenants_share_no_cache(replicas, make_route) -> None:
    """The salt comes from the key; a tenant that sends another's salt still has its own."""
    route = make_route(replicas[1].url, tenants={"key-a": "salt-a", "key-b": "salt-b"})

    def cached(key: str, **more: object) -> int:
        asked = {**ASKED, "prompt": "tenant " * 20, **more}
        reply = post(route.url, asked, headers={"Authorization": f"Bearer {key}"})
        assert reply.status_code == 200, reply.text
        return int(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert (cached("key-a"), cached("key-a")) == (0, 128)
    assert (cached("key-b"), cached("key-b", cache_salt="salt-a")) == (0, 0)
    assert cached("key-b") == 128
    assert post(route.url, ASKED).status_code == 401
    assert post(route.url, ASKED, headers={"Authorization": "Bearer x"}).status_code == 401
    assert "salt-a" not in route.events.getvalue() and "tenant" not in route.events.getvalue()


@pytest.mark.parametrize(
    "router", ["prefix-load", "cache-aware:slack=1", "power-of-two", "session"]
)
def test_the_event_log_replays_to_the_same_choices(replicas, make_route, tmp_path, router) -> None:
    """The same policy object, fed what the proxy saw, decides as it did live."""
    route = make_route(*[site.url for site in replicas], router=router)
    bodies = [
        {**ASKED, "prompt": "abc"[k % 3] * 40 + str(k), "user": f"u{k % 4}"} for k in range(30)
    ]
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda body: post(route.url, body), bodies))
    assert {reply.status_code for reply in replies} == {200}
    path = route.written(tmp_path / "events.jsonl")
    choices = route_log.replay(path)
    assert len(choices) == 30 and {choice.live for choice in choices} == {0, 1}
    assert [choice.live for choice in choices] == [choice.again for choice in choices]
    other = route_log.replay(path, "round-robin")
    assert [choice.again for choice in other] != [choice.live for choice in other]


def test_a_log_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"minilab_route": 1, "router": "random", "seed": 0, "replicas": 1}\nno\n')
    with pytest.raises(InputError, match=r"x\.jsonl:2: not a line of a route log"):
        route_log.replay(path)


def test_pages_name_what_prompts_share() -> None:
    """Texts and token ids alike; a change in a page changes that page alone."""
    one, other = (segments({"prompt": "a" * 64 + tail}, 4.0) for tail in ("x" * 70, "y" * 70))
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]
    assert [length for _, length in one] == [16, 16, 2]
    ids = segments({"prompt": list(range(20))}, 4.0)
    assert [length for _, length in ids] == [16, 4]
    chat = segments({"messages": [{"role": "user", "content": "hi"}]}, 1.0)
    assert chat != segments({"messages": [{"role": "system", "content": "hi"}]}, 1.0)
    assert segments({}, 4.0) == ((0, 1),)


def test_tenants_come_with_their_salts(tmp_path: Path) -> None:
    file = tmp_path / "tenants"
    file.write_text("# key salt\nk1 s1\nk2 s2\n")
    assert tenants(str(file)) == {"k1": "s1", "k2": "s2"}
    file.write_text("k1 s1\nk1 s2\n")
    with pytest.raises(InputError, match="comes twice"):
        tenants(str(file))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["http://x", "--router", "fastest"], "unknown router 'fastest'"),
        (["http://x", "--router", "cache-aware:speed=1"], "no option 'speed'"),
        (["localhost:8000"], "replica 'localhost:8000'; give its address"),
        (["http://x", "--events", "x.txt"], "x.txt: cannot end in '.txt'"),
    ],
    ids=["router", "option", "url", "events"],
)
def test_a_start_that_cannot_work_is_refused_in_one_line(words, told, capsys) -> None:
    assert main(["route", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and told in said.err
