"""Bodies and requests that are wrong: each gets its status, and nobody else notices."""

from __future__ import annotations

import json
import socket
import threading

import httpx
import pytest

from minilab.serve.limits import ServeLimits

GOOD = {"prompt": "hello", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
PATHS = ("/v1/completions", "/v1/chat/completions")

BAD_BODIES = {
    "empty": (b"", "not JSON"),
    "cut": (b'{"prompt": "hel', "not JSON"),
    "not-utf8": (b'{"prompt": "caf\xe9"}', "not UTF-8 (byte 15 is 0xe9)"),
    "utf16": ('{"prompt": "a"}'.encode("utf-16"), "not UTF-8"),
    "array": (b"[1, 2]", "a JSON array"),
    "number": (b"3", "a JSON number"),
    "nan": (b'{"temperature": NaN}', "NaN is no JSON number"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "huge-number": (b'{"max_tokens": ' + b"9" * 5000 + b"}", "not JSON"),
    "half-a-surrogate-pair": (b'{"prompt": "\\ud800", "messages": 1}', None),
}


def told(response: httpx.Response) -> dict[str, object]:
    """The error object, which has all four of OpenAI's fields."""
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].count("\n") == 0
    return error


@pytest.mark.parametrize("name", BAD_BODIES)
@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_is_wrong_is_a_bad_request(site, path, name) -> None:
    body, words = BAD_BODIES[name]
    response = site.post(path, body)
    assert response.status_code == 400
    error = told(response)
    assert error["type"] == "invalid_request_error"
    assert words is None or words in str(error["message"])


def test_half_a_surrogate_pair_is_named(site) -> None:
    """JSON can say it, UTF-8 cannot: it would break the tokenizer, deep inside."""
    for body in (b'{"prompt": "ab\\ud800"}', b'{"prompt": "a", "cache_salt": "\\udfff"}'):
        error = told(site.post("/v1/completions", body))
        assert "half of a surrogate pair" in str(error["message"])
    body = b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    assert told(site.post("/v1/chat/completions", body))["param"] == "messages[0]"


def test_a_body_beyond_the_limit_is_refused(make_site) -> None:
    site = make_site(limits=ServeLimits(max_body=10_000))
    response = site.post("/v1/completions", {"prompt": "x" * 20_000})
    assert response.status_code == 413 and told(response)["code"] == "body_too_large"
    assert "10000 bytes" in response.text
    assert site.post("/v1/completions", {**GOOD, "prompt": "x" * 1000}).status_code == 200


def test_a_huge_prompt_is_refused_before_it_is_split(site) -> None:
    """Splitting megabytes costs seconds that other requests would feel."""
    response = site.post("/v1/completions", {"prompt": "word " * 500_000})
    assert response.status_code == 400
    error = told(response)
    assert error["code"] == "context_length_exceeded" and "2048" in str(error["message"])


def test_a_body_that_does_not_come_is_given_up(make_site) -> None:
    """A client that announces a body and sends none must not hold a handler for ever."""
    site = make_site(limits=ServeLimits(body_timeout=0.3))
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        answer = peer.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408") and b"body_timeout" in answer


def test_paths_and_methods_that_are_none(site) -> None:
    response = httpx.get(f"{site.url}/v2/completions")
    assert response.status_code == 404 and told(response)["code"] == "not_found"
    response = httpx.get(f"{site.url}/v1/completions")
    assert response.status_code == 405 and response.headers["Allow"] == "POST"
    assert "use POST" in str(told(response)["message"])


def test_what_is_no_http_gets_400(site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert peer.recv(65536).startswith(b"HTTP/1.0 400")


def test_strangers_hurt_no_other_request(site) -> None:
    """The text of a stream stays the same while all of the above comes in beside it."""
    asked = {**GOOD, "max_tokens": 100, "stream": True}
    alone = site.post("/v1/completions", asked).text
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            for path in PATHS:
                for body, _ in BAD_BODIES.values():
                    assert site.post(path, body).status_code == 400
            site.post("/v1/completions", {"prompt": "word " * 100_000})

    stranger = threading.Thread(target=disturb)
    stranger.start()
    try:
        disturbed = site.post("/v1/completions", asked).text
    finally:
        stop.set()
        stranger.join()
    assert text_of(disturbed) == text_of(alone) != ""
    site.nothing_left()


def text_of(stream: str) -> str:
    """The text of a stream of completions, which must be complete."""
    events = [line[6:] for line in stream.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)
