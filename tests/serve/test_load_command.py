"""``minilab load`` as typed: what it prints, writes and refuses. The server lives in a thread."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading

import pytest
from fake_server import DONE, FakeServer, bill, chunk, plain_answer

from minilab.cli.main import main
from minilab.facts import readers
from minilab.facts.slo import SLOSet, goodput

SMALL = ("--synthetic", "--num", 6, "--rate", 200, "--prompt-tokens", 20, "--output-tokens", 3)


@pytest.fixture
def serving():
    """``serving(script)``: a fake server in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opened = []

    def start(script=plain_answer) -> FakeServer:
        server = FakeServer(script)
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        opened.append(server)
        return server

    yield start
    for server in opened:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def load(capsys, *words: object) -> tuple[int, str, str]:
    status = main(["load", *(str(word) for word in words)])
    return status, *capsys.readouterr()


def test_report_and_log_agree(serving, capsys, tmp_path) -> None:
    """The printed goodput is that of the written log, which any reader of ours takes."""
    server, out = serving(), tmp_path / "run.jsonl"
    status, text, _ = load(
        capsys, "--url", server.url, "--model", "m", *SMALL, "--slo", "ttft=30", "--out", out,
        "--json",
    )  # fmt: skip
    result, log = json.loads(text), readers.read(out)
    assert status == 0 and result["requests"] == result["finished"] == len(log) == 6
    judged = goodput(log, SLOSet.parse("ttft=30"), 1)
    assert (result["goodput"], result["attainment"]) == (judged.goodput, 1.0)
    assert result["lengths"] == {
        "finished": 6, "counted_by_server": 6, "prompt_as_asked": 6, "output_as_asked": 6,
    }  # fmt: skip
    assert len(server.bodies) == 6 + 2  # a probe and a warm-up before
    assert result["prompts"] == "token ids"


def test_log_can_be_judged_again(serving, capsys, tmp_path) -> None:
    """``minilab goodput`` reads the log and shows who measured and how fast it sent."""
    server, out = serving(), tmp_path / "run.jsonl"
    load(capsys, "--url", server.url, "--model", "m", *SMALL, "--out", out)
    assert main(["goodput", str(out), "--slo", "ttft=30,itl=4"]) == 0
    text = capsys.readouterr().out
    assert "measured by minilab load" in text and "asked for" in text and "100.0%" in text


def test_interrupt_keeps_the_log(serving, capsys, tmp_path) -> None:
    """Ctrl-C ends the run with status 130 and a log of what was sent."""
    held = asyncio.Event()

    def script(body):
        if body["max_tokens"] < 9:  # probe and warm-up
            return plain_answer(body)
        if len(server.bodies) == 4:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return [chunk(), held, chunk(), bill(20, 2), DONE]

    server, out = serving(script), tmp_path / "run.jsonl"
    status, text, _ = load(
        capsys, "--url", server.url, "--model", "m", "--synthetic", "--num", 50, "--rate", 1.5,
        "--arrivals", "constant", "--prompt-tokens", 20, "--output-tokens", 9, "--out", out,
    )  # fmt: skip
    log = readers.read(out)
    assert status == 130 and "interrupted" in text
    assert set(log.requests["status"]) == {"aborted"}
    assert len(log) + log.meta["not_sent"] == 50 and 2 <= len(log) < 10


def test_trace_is_replayed(serving, capsys, tmp_path) -> None:
    """Lengths and times are the trace's, four times as fast."""
    trace, out = tmp_path / "own.csv", tmp_path / "run.jsonl"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,12,2\n0.4,30,4\n0.8,21,3\n")
    server = serving()
    words = ("--trace-file", trace, "--speedup", 4, "--out", out)
    assert load(capsys, "--url", server.url, "--model", "m", *words)[0] == 0
    log = readers.read(out)
    assert log.requests["arrival"].tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert log.requests["prompt_tokens"].tolist() == [12, 30, 21]
    assert log.requests["output_tokens"].tolist() == [2, 4, 3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--trace"),
        (("--synthetic", "--out", "run.txt"), "cannot end in '.txt'"),
        (("--synthetic", "--slo", "ttft=300"), "did you mean"),
        (("--synthetic", "--arrivals", "poison"), "arrivals 'poison'"),
        (("--synthetic", "--ids", "7"), "100-1000"),
        (("--synthetic", "--prompts", "tokens"), "unknown form of prompts"),
        (("--synthetic", "--api-key-env", "NO_SUCH_VARIABLE"), "not set"),
        (("--trace", "azure-conv-2023", "--arrivals", "gamma"), "--arrivals is for"),
    ],
)
def test_refused_in_one_line(capsys, words, said) -> None:
    """Before anything is sent: nobody listens at that address."""
    status, out, err = load(capsys, "--url", "http://127.0.0.1:9", "--model", "m", *words)
    assert status == 2 and out == "" and err.count("\n") == 1 and said in err, err
