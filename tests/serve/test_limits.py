"""The queue and the clock: who is refused, who is ended, and what stays behind (nothing)."""

from __future__ import annotations

import gc
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import openai
import pytest
from serving import wait_for

from minilab.engine.generation import Generation
from minilab.facts.errors import InputError
from minilab.serve.channel import Channel
from minilab.serve.engine_loop import Job, Served
from minilab.serve.limits import ServeLimits

ASKED = {"prompt": "one two three", "max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def threads():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_a_full_queue_refuses_and_says_when_to_come_back(threads, make_site) -> None:
    """Two run, one waits, the fourth gets 429; the free slots of an idle server are no queue."""
    site = make_site(limits=ServeLimits(max_queue=1), scheduler={"max_num_seqs": 2})
    site.gate.clear()
    inside = [threads.submit(site.post, "/v1/completions", ASKED) for _ in range(3)]
    wait_for(lambda: site.service.in_flight == 3)
    with pytest.raises(openai.RateLimitError) as caught:
        site.openai().completions.create(model="tiny", prompt="x")
    assert caught.value.code == "queue_full"
    assert int(caught.value.response.headers["Retry-After"]) >= 1
    site.gate.set()
    assert [reply.result().status_code for reply in inside] == [200, 200, 200]
    counted = site.metrics()
    assert counted["vllm:admission_rejections_total:max_num_queued_reqs"] == 1
    assert counted["vllm:request_success_total:length"] == 3
    site.nothing_left()


def test_who_does_not_fit_the_pool_counts_as_queued(threads, make_site) -> None:
    """A running slot is free, but no block is: the queue must not grow past its limit for that."""
    site = make_site(
        limits=ServeLimits(max_queue=1), scheduler={"num_blocks": 8, "max_num_seqs": 16}
    )
    long = {**ASKED, "prompt": "x" * 100, "max_tokens": 20}
    site.gate.clear()
    inside = [threads.submit(site.post, "/v1/completions", long)]
    assert site.held.wait(10)
    other = {**long, "prompt": "y" * 100}  # no block in common with the first
    inside.append(threads.submit(site.post, "/v1/completions", other))
    wait_for(lambda: site.service.in_flight == 2)
    site.one_step()  # then the second one is taken in
    site.one_step()  # and seen not to fit
    assert site.metrics()["vllm:num_requests_waiting"] == 1
    assert site.post("/v1/completions", other).status_code == 429
    site.gate.set()
    assert [reply.result().status_code for reply in inside] == [200, 200]


def test_a_request_beyond_its_time_is_ended_and_frees_its_blocks(threads, make_site) -> None:
    site = make_site(limits=ServeLimits(request_timeout=0.5))
    site.gate.clear()
    response = site.post("/v1/completions", ASKED)
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "request_timeout"
    site.gate.set()
    wait_for(lambda: site.metrics()["vllm:request_success_total:abort"] == 1)
    site.nothing_left()


def test_a_stream_beyond_its_time_ends_with_an_error_event(make_site) -> None:
    """A stream that just stops looks like a whole text; the client must see that it is not."""
    site = make_site(limits=ServeLimits(request_timeout=1.0))
    events = []
    with httpx.stream(
        "POST", f"{site.url}/v1/completions", json={**ASKED, "max_tokens": 50, "stream": True}
    ) as response:
        for line in response.iter_lines():
            if line:
                events.append(line)
                site.gate.clear()  # after the first event the engine stands still
    assert response.status_code == 200
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[-2][6:])["error"]["code"] == "request_timeout"
    site.gate.set()
    site.nothing_left()


def test_the_official_client_raises_on_that_event(make_site) -> None:
    site = make_site(limits=ServeLimits(request_timeout=1.0))
    with pytest.raises(openai.APIError, match="took more than 1 s"):
        for _ in site.openai().completions.create(
            model="tiny", prompt="x", max_tokens=50, stream=True, extra_body={"ignore_eos": True}
        ):
            site.gate.clear()
    site.gate.set()


def test_a_broken_engine_is_told_to_everyone(threads, make_site) -> None:
    """Nobody may wait for an engine that is dead, and no balancer may send it more."""
    site = make_site()
    site.gate.clear()
    inside = [threads.submit(site.post, "/v1/completions", ASKED) for _ in range(3)]
    wait_for(lambda: site.service.in_flight == 3)
    site.llm.scheduler.schedule = None  # type: ignore[method-assign, assignment]
    site.gate.set()
    replies = [reply.result() for reply in inside]
    assert {reply.status_code for reply in replies} == {500}
    assert {reply.json()["error"]["code"] for reply in replies} == {"engine_dead"}
    site._thread.join(20)
    assert not site._thread.is_alive()  # the server ends by itself
    assert isinstance(site.service.broken, TypeError)


def test_a_request_that_is_over_leaves_nothing_behind(make_site, threads) -> None:
    """Whatever its end: a server runs for weeks, and a few bytes per request are gigabytes."""
    # Not RequestState: the scheduler forgets an aborted one when its last step would have come.
    kept = (Generation, Channel, Served, Job)

    def alive() -> int:
        gc.collect()
        return sum(type(thing) in kept for thing in gc.get_objects())

    before = alive()  # other tests of this process may hold some
    site = make_site(limits=ServeLimits(max_queue=1, request_timeout=5.0))
    for _ in range(3):
        site.post("/v1/completions", ASKED)
        site.post("/v1/completions", {**ASKED, "stream": True})
        site.post("/v1/completions", {**ASKED, "prompt": "x" * 5000})
        with suppress(httpx.ReadTimeout):
            httpx.post(f"{site.url}/v1/completions", json={**ASKED, "max_tokens": 900}, timeout=0.1)
    crowd = [threads.submit(site.post, "/v1/completions", ASKED) for _ in range(30)]
    assert {reply.result().status_code for reply in crowd} <= {200, 429}
    site.nothing_left()
    for _ in range(20):  # a handler may still be on its way out
        if alive() <= before:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{alive() - before} objects of ended requests are still there")


def test_limits_are_above_zero() -> None:
    with pytest.raises(InputError, match="drain_timeout is 0; it must be above 0"):
        ServeLimits(drain_timeout=0)
