"""Sliders set from metrics and run logs: what is known comes back, what is not is said."""

from __future__ import annotations

import json
import math

import pytest

from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.workload import synthetic
from minilab.judge.advisor.expose import expose
from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.window import Histogram
from minilab.judge.selector.fill_files import fill_from
from minilab.judge.selector.filled import from_metrics, known_model
from minilab.judge.selector.filling import Page
from minilab.judge.selector.lengths import acceptance_of, spread, spread_of_buckets
from minilab.judge.selector.parameters import parameters, settings_of
from minilab.judge.selector.tables import as_json, tables
from minilab.sim.experiment import Experiment

DRAFTS = """\
vllm:spec_decode_num_drafts_total 100
vllm:spec_decode_num_draft_tokens_total 400
vllm:spec_decode_num_accepted_tokens_total 168.0
"""


@pytest.fixture(scope="module")
def log():
    """3 requests/s for 100 s: prompts of 1,000 tokens of which 640 are shared, 50 tokens out."""
    work = synthetic(3.0, 300, 360, 50, seed=3, groups=4, shared_tokens=640)
    return Experiment(model="qwen3-8b", gpu="l40s").run(work)


def fill(before, after, seconds=None, now=None):
    page = Page(as_json(), json.dumps(parameters()))
    asked = {"before": before, "after": after, "seconds": seconds, "now": now}
    return json.loads(page.fill(json.dumps(asked)))


def test_a_simulated_server_s_page_gives_back_its_workload(log):
    """The page knows nothing but counters; rate needs the time that they cover."""
    span = log.requests["arrival"].max()
    text = expose(log, start=1e9, model="Qwen/Qwen3-8B")
    values = fill("", text, now=1e9 + span)["values"]
    assert values["rate"] == pytest.approx(3.0, rel=0.15)
    assert values["prompt"] == pytest.approx(1000, rel=1e-2)
    assert values["output"] == 50 and values["model"] == "qwen3-8b" and values["cv"] == 0
    assert 0.55 < values["prefix_share"] < 0.64
    settings_of(values)


def test_two_pages_are_a_difference(log):
    """The load before the first page must not count."""
    half = log.select(log.requests["id"] < 200)
    told = fill(expose(half, start=1e9), expose(log, start=1e9), seconds=50)
    assert told["values"]["rate"] == 2.0
    alone = fill("", expose(log, start=1e9), seconds=50)
    assert alone["values"]["rate"] == 6.0


def test_a_restart_between_the_pages_counts_from_the_start(log):
    half = log.select(log.requests["id"] < 200)
    told = fill(expose(log, start=1e9), expose(half, start=2e9), now=2e9 + 100)
    assert told["values"]["rate"] == 2.0
    assert any("restarted" in note for note in told["notes"])


def test_without_a_time_there_is_no_rate(log):
    told = fill("", expose(log, start=1e9).partition("\n")[2])
    assert "rate" not in told["values"]
    assert "give it in seconds" in dict(told["unread"])["rate"]


def test_a_run_log_says_the_same_in_the_page_and_as_a_file(log, tmp_path):
    path = tmp_path / "run.jsonl"
    runlog_io.write(log, path)
    page, file = fill("", path.read_text()), fill_from([str(path)])
    assert page["values"] == file.values
    assert file.values["gpu"] == "l40s" and file.values["gpus"] == 1
    assert file.values["rate"] == pytest.approx(3.0, rel=0.15)


def test_a_run_log_that_was_cut_short_is_read_as_far_as_it_goes(log, tmp_path):
    path = tmp_path / "run.jsonl"
    runlog_io.write(log, path)
    told = fill("", path.read_text()[:20_000])
    assert told["values"]["output"] == 50
    assert any("could not be read" in note for note in told["notes"])


@pytest.mark.parametrize(
    "text", ["hello", "{", "[1]", "{}\n{}", "\x00", "# HELP x", "null", "1 2 3"]
)
def test_foreign_text_sets_nothing_and_says_so(text):
    told = fill("", text)
    assert told["values"] == {} and told["unread"]


def test_acceptance_is_the_chance_of_one_token():
    """1.68 of 4 accepted is 0.682 each, not 0.42: a token counts only behind accepted ones."""
    pages = [read_scrape("process_start_time_seconds 1\n" + DRAFTS)]
    found = from_metrics(pages, None, tables())
    assert found.values["acceptance"] == pytest.approx(0.682, abs=1e-3)
    for chance in (0.0, 0.3, 0.8, 1.0):
        accepted = sum(chance**at for at in range(1, 6))
        assert acceptance_of(accepted, 5) == pytest.approx(chance, abs=1e-9)


def test_out_of_range_is_said():
    told = fill("", "vllm:request_success_total 9000000\n", seconds=1)
    assert told["values"]["rate"] == 200
    assert any("the slider ends at 200" in note for note in told["notes"])


def test_the_tail_of_lengths():
    """From buckets it is near the truth, and 0 for lengths in one bucket."""
    values = [100.0] * 50 + [900.0] * 50
    assert spread(values) == pytest.approx(0.8)
    buckets = Histogram(
        [(200.0, 50.0), (800.0, 50.0), (1000.0, 100.0), (math.inf, 100.0)], 5e4, 100
    )
    assert spread_of_buckets(buckets) == pytest.approx(0.8)
    assert spread([7.0, 7.0]) == 0 == spread([])


@pytest.mark.parametrize(
    ("served", "known"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-30B-A3B-FP8", "qwen3-30b-a3b-fp8"),
        ("/models/qwen3-8b", "qwen3-8b"),
        ("my-llama", ""),
        ("llama-3.1-80b", ""),
    ],
)
def test_a_served_name_is_known_by_whole_words(served, known):
    assert known_model(served, list(tables()["models"])) == known


def test_recorded_pages(data_folder):
    """A real server: 80 requests of about 1,200 tokens, as the client of the same run counted."""
    folder = data_folder("serving-metrics")
    server = fill_from([str(folder / "vllm032_bigbudget.metrics.txt")], seconds=60)
    client = fill_from([str(folder / "vllm032_bigbudget.bench.json.gz")])
    assert server.values["prompt"] == pytest.approx(client.values["prompt"], rel=0.02)
    assert server.values["output"] == pytest.approx(client.values["output"], rel=0.05)


def test_files_that_hold_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("...")
    with pytest.raises(InputError, match="give a page of /metrics"):
        fill_from([str(path)])
    with pytest.raises(InputError, match="cannot be read"):
        fill_from([str(tmp_path / "none")])
