"""The load client against a scripted server: order and counts, never absolute times."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import web
from fake_server import DONE, DROP, FakeServer, bill, chunk, plain_answer, sse, usage

from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.request import Request
from minilab.facts.workload import Workload, closed_loop, sessions, synthetic
from minilab.serve.load import Settings, play
from minilab.serve.load_wire import Target

QUICK = Settings(form="ids", warmup=0)


def burst(n: int, prompt: int = 12, output: int = 3) -> Workload:
    """n requests within a few milliseconds, each of another length."""
    rows = [Request(k, 0.001 * k, prompt + k, output) for k in range(n)]
    return Workload(rows, seed=0)


def played(script, work: Workload, settings: Settings = QUICK, chat: bool = False, then=None):
    """The log of a run against ``script`` and the server that saw it, probes left out."""

    async def run():
        async with FakeServer() as server:
            stop = asyncio.Event()
            server.script = plain_answer if settings.form == "ids" else script
            probed = asyncio.Event()

            def routed(body):
                if not probed.is_set():
                    probed.set()
                    return plain_answer(body)
                return script(body)

            if settings.form == "ids":
                server.script = routed
            target = Target(server.url, "m", chat=chat)
            run = asyncio.create_task(play(target, work, settings, stop=stop))
            if then is not None:
                await then(server, stop)
            log = await asyncio.wait_for(run, 30)
            if settings.form == "ids":
                del server.bodies[0], server.paths[0]
            return log, server

    return asyncio.run(run())


def gaps_of(log, row: int):
    assert isinstance(log.gaps, GapLists)
    return log.gaps.row(row)


def test_open_loop() -> None:
    """A server that answers nobody until all have arrived: a client that waits would hang here."""
    n, everyone = 40, asyncio.Event()

    def script(body):
        return [everyone, *plain_answer(body)]

    async def then(server, stop):
        for _ in range(n + 1):  # the probe is one of them
            await server.arrived.acquire()
        everyone.set()

    log, server = played(script, burst(n), then=then)
    assert server.most == n
    assert log.finished.all() and len(log) == n
    assert log.meta["not_sent"] == 0 and not log.meta["interrupted"]


def test_sent_in_order_of_arrival() -> None:
    """Requests carry the workload's lengths, so the order in which they come is told apart."""
    work = Workload([Request(k, 0.02 * k, 10 + 3 * k, 2) for k in range(12)])
    log, server = played(plain_answer, work)
    assert [len(body["prompt"]) for body in server.bodies] == [10 + 3 * k for k in range(12)]
    assert log.requests["prompt_tokens"].tolist() == [10 + 3 * k for k in range(12)]
    arrival, sent = log.requests["arrival"], log.requests["queued"]
    assert np.allclose(arrival, [0.02 * k for k in range(12)])  # when it was due, to the tick
    assert (sent >= arrival).all()  # never early
    assert log.meta["client_lag"]["max"] == pytest.approx((sent - arrival).max())


def test_max_concurrency_holds_back_and_counts_the_wait() -> None:
    """The client's own limit must not hide in the server's numbers, nor vanish from TTFT."""

    def script(body):
        return [0.02, *plain_answer(body)]

    log, server = played(script, burst(8), replace(QUICK, max_concurrency=2))
    assert server.most == 2
    ttft = log.requests["first_token"] - log.requests["arrival"]
    assert ttft[-1] > 3 * 0.02  # three pairs went before it
    assert log.meta["client_queue"]["p99"] > 2 * 0.02
    assert log.meta["client_lag"]["p99"] < log.meta["client_queue"]["p99"]


def test_closed_loop() -> None:
    """Three clients: never more than three at once, and a request arrives when a slot is free."""
    work = closed_loop(3, 9, 10, 2, seed=1)

    def script(body):
        return [0.01, *plain_answer(body)]

    log, server = played(script, work)
    assert server.most == 3
    order = np.sort(log.requests["arrival"])
    ends = np.sort(log.requests["finish"])
    assert (order[3:] >= ends[:-3] - 1e-9).all()


def test_turns_of_a_session_wait_for_the_answer() -> None:
    """A user cannot reply to what was not said yet; the next prompt begins with the last one."""
    work = sessions(50.0, 3, 3, system_tokens=8, user_tokens=5, output_tokens=4, think=0.001)
    log, server = played(plain_answer, work)
    end = dict(zip(log.requests["id"].tolist(), log.requests["finish"], strict=True))
    for request, arrival in zip(work.requests, log.requests["arrival"], strict=True):
        if request.after is not None:
            assert arrival >= end[request.after] + request.think - 1e-9
    prompts = sorted((body["prompt"] for body in server.bodies), key=len)
    assert all(prompt[:8] == prompts[0][:8] for prompt in prompts)  # one system prompt
    longest = [p for p in prompts if len(p) == max(map(len, prompts))]
    assert sum(prompt == longest[0][: len(prompt)] for prompt in prompts) == 3  # its own turns


def test_status_of_every_kind_of_end() -> None:
    """Failed and rejected requests stay in the log: goodput's denominator is what was asked."""
    ends = {
        12: plain_answer,
        13: lambda body: web.Response(status=429, text='{"error": {"message": "queue is full"}}'),
        14: lambda body: web.Response(status=400, text='{"error": {"message": "too long"}}'),
        15: lambda body: [chunk(), chunk(), DROP],
        16: lambda body: [chunk(), sse({"error": {"message": "out of memory"}}), DONE],
        17: lambda body: [chunk(), 60, chunk(), DONE],
        18: lambda body: [b"data: {not json\n\n", DONE],
        19: lambda body: [bill(19, 0), DONE],
        20: lambda body: web.json_response({"choices": [{"text": "all at once"}]}),
        21: lambda body: [chunk(), chunk()],
    }
    settings = replace(QUICK, timeout=1.0)
    log, _ = played(lambda body: ends[len(body["prompt"])](body), burst(10), settings)
    status = log.requests["status"].tolist()
    assert status == ["finished", "rejected"] + ["failed"] * 8
    # what came before the end is kept
    assert log.requests["output_tokens"].tolist() == [3, 0, 0, 2, 1, 1, 0, 0, 0, 2]
    assert [len(gaps_of(log, row)) for row in range(10)] == [2, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    from minilab.facts.slo import SLOSet, goodput

    judged = goodput(log, SLOSet.parse("ttft=50"), 1)
    assert (judged.total, judged.good) == (10, 1)


def test_errors_are_told() -> None:
    """A run in which all fail for one reason must say which."""
    said = '{"error": {"message": "unknown\\nmodel"}}'
    log, _ = played(lambda body: web.Response(status=404, text=said), burst(4))
    assert log.meta["errors"] == {"HTTP 404: unknown model": 4}


def test_chunk_of_several_tokens_is_one_gap_and_zeros() -> None:
    """A speculating server sends 3 tokens at once: a gap and two zeros, where they came."""

    def script(body):
        return [
            *(chunk(usage=usage(12, 1)), 0.02, chunk("abc", usage=usage(12, 4)), 0.02),
            *(chunk(usage=usage(12, 5)), bill(12, 5), DONE),
        ]

    log, _ = played(script, burst(1, output=5))
    first, *zeros, last = gaps_of(log, 0)
    assert zeros == [0.0, 0.0] and min(first, last) > 0.01
    assert log.meta["chunks"]["placed_by_server_count"] == 1


@pytest.mark.parametrize("total", [2, 3, 6])
def test_only_the_total_is_known(total) -> None:
    """Three chunks without counts: fewer, as many and more tokens than chunks; the sum stays."""

    def script(body):
        return [chunk(), 0.02, chunk(), 0.03, chunk(finish="stop"), bill(12, total), DONE]

    log, _ = played(script, burst(1, output=total))
    gaps = gaps_of(log, 0)
    assert len(gaps) == total - 1
    span = log.requests["finish"][0] - log.requests["first_token"][0]
    assert gaps.sum() == pytest.approx(span)
    assert (gaps == 0).sum() == max(0, total - 3)


def test_events_cut_anywhere() -> None:
    """TCP knows no events: bytes that arrive one by one, CRLF, pings and UTF-8 halves."""
    text = b": ping\r\n\r\n" + sse({"choices": [{"text": "\u00e9\u4e2d", "finish_reason": None}]})
    whole = text + chunk(finish="stop").replace(b"\n", b"\r\n") + bill(12, 2) + DONE

    def script(body):
        return [part for byte in whole for part in (bytes([byte]), 0)]

    log, _ = played(script, burst(2, output=2))
    assert log.finished.all() and log.requests["output_tokens"].tolist() == [2, 2]


def test_interrupted_run_is_a_valid_log() -> None:
    """Ctrl-C: those that ended are finished, the others aborted, the rest was never sent."""
    held = asyncio.Event()
    slow = Workload([*burst(4).requests, Request(4, 3600.0, 99, 3)])

    def script(body):
        return plain_answer(body) if len(body["prompt"]) < 14 else [chunk(), held, chunk(), DONE]

    async def then(server, stop):
        for _ in range(5):
            await server.arrived.acquire()
        await asyncio.sleep(0.2)
        stop.set()

    log, server = played(script, slow, then=then)
    assert log.requests["status"].tolist() == ["finished", "finished", "aborted", "aborted"]
    assert log.meta["interrupted"] and log.meta["not_sent"] == 1
    assert log.requests["output_tokens"].tolist() == [3, 3, 1, 1]
    assert server.gone == 2  # the client hung up


def test_bodies() -> None:
    """Lengths, salt and the switch of sampling that a benchmark relies on are really asked for."""
    work = Workload([Request(0, 0.0, 20, 7, cache_salt="acme")])
    _, server = played(plain_answer, work)
    (body,) = server.bodies
    assert (body["max_tokens"], body["temperature"], body["cache_salt"]) == (7, 0, "acme")
    assert body["ignore_eos"] is True and body["stream"] is True
    assert body["stream_options"]["include_usage"] is True
    assert server.paths == ["/v1/completions"]


def test_plain_body_and_key() -> None:
    """OpenAI itself refuses fields that it does not know; a key goes into the header only."""
    target = Target("http://h/v1/", "m", chat=True, plain=True, key="sk-secret")
    body = target.body("hello", 5, "salt").decode()
    assert "cache_salt" not in body and "ignore_eos" not in body and "secret" not in body
    assert target.headers["Authorization"] == "Bearer sk-secret"
    assert target.endpoint == "http://h/v1/chat/completions"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h", "http://", "http://me:pw@h"])
def test_urls_refused(url) -> None:
    """Found out before a run of an hour."""
    with pytest.raises(InputError, match="url"):
        Target(url, "m")


def test_shared_segments_are_equal_tokens() -> None:
    """A prefix cache sees what the trace recorded: same segments same tokens, others not."""
    work = synthetic(200.0, 12, 16, 2, groups=2, shared_tokens=32, seed=3)
    _, server = played(plain_answer, work)
    fronts = {tuple(body["prompt"][:32]) for body in server.bodies}
    assert len(fronts) == 2
    assert len({tuple(body["prompt"]) for body in server.bodies}) == 12
    assert {len(body["prompt"]) for body in server.bodies} == {48}


def test_slow_client_is_told(monkeypatch) -> None:
    """A client that burns its core sends late; the report must blame itself."""
    from minilab.serve import load_client

    body = load_client._Run._body

    def heavy(self, request):
        made = body(self, request)
        deadline = load_client.time.perf_counter() + 0.05
        while load_client.time.perf_counter() < deadline:
            pass
        return made

    work = Workload([Request(k, 0.002 * k, 12, 2) for k in range(30)])
    monkeypatch.setattr(load_client._Run, "_body", heavy)
    late, _ = played(plain_answer, work)
    assert late.meta["client_is_bottleneck"]
    assert late.meta["arrivals"]["achieved"] < late.meta["arrivals"]["requested"] / 2
