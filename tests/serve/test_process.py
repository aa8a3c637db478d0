"""`minilab serve` as a process: what it says, SIGTERM under load, the run log, the exit status."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from served_process import Process
from serving import wait_for

from minilab.cli.main import main
from minilab.facts import runlog_io, slo

ASKED = {"prompt": "one two", "temperature": 0, "ignore_eos": True}


@pytest.fixture
def start():
    made: list[Process] = []

    def begin(*options: str, **environment: str) -> Process:
        made.append(Process(*options, **environment))
        return made[-1]

    yield begin
    for process in made:
        process.process.kill()
        process.process.wait()


def stream(url: str, tokens: int, begun: threading.Event) -> list[str]:
    """The events of one stream; ``begun`` is set at the first."""
    events = []
    body = {**ASKED, "max_tokens": tokens, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line:
                events.append(line.removeprefix("data: "))
                begun.set()
    return events


def test_sigterm_lets_what_runs_finish_and_takes_nothing_new(start, tmp_path) -> None:
    log = tmp_path / "run.jsonl"
    served = start("--runlog", str(log))
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(stream, served.url, 800, begun)
        assert begun.wait(30)
        served.process.send_signal(signal.SIGTERM)
        wait_for(lambda: httpx.get(f"{served.url}/health").status_code == 503)
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0)
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="tiny", prompt="x")
        assert (caught.value.status_code, caught.value.code) == (503, "shutting_down")
        events = running.result()
    assert events[-1] == "[DONE]" and json.loads(events[-2])["choices"][0]["finish_reason"]
    status, said = served.end()
    assert status == 0 and "1 requests have 30 s to finish" in said
    written = runlog_io.read(log)
    assert written.requests["output_tokens"].tolist() == [800]
    assert slo.goodput(written, "ttft=60s,itl=30s").attainment == 1.0


@pytest.mark.slow
def test_what_does_not_finish_in_time_is_told(start) -> None:
    """A stream cut without a word looks like a whole text."""
    served = start("--drain-timeout", "0.2")
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(stream, served.url, 2000, begun)
        assert begun.wait(30)
        served.process.send_signal(signal.SIGTERM)
        events = running.result()
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["error"]["code"] == "shutting_down"
    status, said = served.end()
    assert status == 0 and "1 requests did not finish in time" in said


@pytest.mark.slow
def test_a_key_from_the_environment(start) -> None:
    """On the command line every user of the machine would read it."""
    served = start(MINILAB_API_KEY="from-outside")
    assert httpx.get(f"{served.url}/v1/models").status_code == 401
    headers = {"Authorization": "Bearer from-outside"}
    assert httpx.get(f"{served.url}/v1/models", headers=headers).status_code == 200
    served.process.send_signal(signal.SIGINT)
    assert served.end()[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no-such-model"], "no-such-model: no such folder or file"),
        (["tiny", "--runlog", "x.txt"], "x.txt: cannot end in '.txt'"),
        (["tiny", "--api-key-file", "none"], "none: no such file or directory"),
        (["tiny", "--host", "203.0.113.1"], "203.0.113.1:0: "),
        (["tiny", "--max-num-seqs", "4000"], "below max_num_seqs 4000"),
        (["tiny", "--chat-template", "none"], "none: no such file"),
    ],
    ids=["model", "runlog", "keys", "host", "sizes", "template"],
)
def test_a_start_that_cannot_work_is_refused_in_one_line(words, told, capsys) -> None:
    assert main(["serve", *words, "--port", "0"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and told in said.err


def test_a_template_that_is_none_is_refused(tmp_path: Path, capsys) -> None:
    bad = tmp_path / "bad.jinja"
    bad.write_text("{% for message in %}")
    assert main(["serve", "tiny", "--port", "0", "--chat-template", str(bad)]) == 2
    assert "chat template, line 1" in capsys.readouterr().err


def test_keys_come_one_per_line(tmp_path: Path) -> None:
    from minilab.serve.keys import api_keys

    file = tmp_path / "keys"
    file.write_text("# tenants\none\n\n two \n")
    assert api_keys(str(file)) == ["one", "two"]
