"""Whatever is pasted: no traceback, and a word on what could not be read."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.judge.advisor.advise import advise
from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.sources import Sources

SLO = {"ttft": 1.0, "itl": 0.1}
PAGE = """# TYPE vllm:time_to_first_token_seconds histogram
process_start_time_seconds 1.7e+09
vllm:time_to_first_token_seconds_bucket{le="0.5",model_name="a, b"} 3.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="a, b"} 9.0
vllm:time_to_first_token_seconds_count{model_name="a, b"} 9.0
vllm:time_to_first_token_seconds_sum{model_name="a, b"} 90.0
vllm:request_queue_time_seconds_count{} 9.0
vllm:request_queue_time_seconds_sum{} 80.0
vllm:kv_cache_usage_perc{engine="0"} 0.4
vllm:num_requests_waiting{engine="0"} 12
"""


def advice_on(tmp_path, *texts):
    sources = Sources()
    for at, text in enumerate(texts):
        path = tmp_path / f"{at}.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        sources.add(str(path))
    advice = advise({"": sources}, SLO)
    json.dumps(advice.to_dict(), allow_nan=False)
    return advice


def test_the_whole_page_is_read():
    scrape = read_scrape(PAGE)
    assert (
        scrape.num_unread == 0
        and scrape.label("vllm:time_to_first_token_seconds_count", "model_name") == "a, b"
    )


@pytest.mark.parametrize("cut", range(0, len(PAGE), 7))
def test_cut_off_pages(tmp_path, cut):
    advice_on(tmp_path, PAGE[:cut])
    advice_on(tmp_path, PAGE[cut:], PAGE)


def test_shuffled_and_doubled_lines_change_nothing(tmp_path):
    lines = PAGE.splitlines()
    expected = advice_on(tmp_path, PAGE).to_dict()["suspects"]
    random.Random(3).shuffle(lines)
    assert advice_on(tmp_path, "\n".join(lines + lines)).to_dict()["suspects"] == expected


def test_foreign_text_says_that_it_was_not_read(tmp_path):
    advice = advice_on(tmp_path, "GET / HTTP/1.1 200 12\n" * 50, bytes(range(256)) * 8)
    assert any("1.txt" in note and "not read" in note for note in advice.notes)
    assert any("0.txt" in note for note in advice.notes)


def test_unread_lines_are_counted_and_redacted(tmp_path):
    """A pasted page may hold a prompt or a path; neither may come out again."""
    page = PAGE + 'vllm:prompt{text="secret words"\n/home/someone/secret.txt: no such file\n'
    advice = advice_on(tmp_path, page)
    text = json.dumps(advice.to_dict())
    assert "2 lines could not be read" in text
    assert "secret" not in text


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_a_page(text):
    read_scrape(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PAGE.splitlines()), max_size=12), st.binary(max_size=60))
def test_any_mixture_is_diagnosed(tmp_path_factory, lines, noise):
    advice_on(tmp_path_factory.mktemp("mix"), "\n".join(lines).encode() + noise)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1]]}]}}',
        '{"data": {"resultType": "matrix"}}',
        "[" * 5000,
        '{"data": 3}',
    ],
    ids=["open", "empty", "short-point", "no-result", "deep", "number"],
)
def test_broken_json_is_unknown(tmp_path, text):
    advice = advice_on(tmp_path, text)
    assert [finding.id for finding in advice.diagnosis.suspects] == ["unknown"]


def test_a_query_range_is_a_series_of_scrapes(tmp_path):
    """Counters are differenced over the range, gauges kept at their highest."""

    def series(name, values):
        points = [[1.7e9 + 15 * at, str(value)] for at, value in enumerate(values)]
        return {"metric": {"__name__": name, "instance": "a:8000"}, "values": points}

    answer = {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                series("vllm:time_to_first_token_seconds_sum", [10, 20, 110]),
                series("vllm:time_to_first_token_seconds_count", [10, 15, 30]),
                series("vllm:kv_cache_usage_perc", [0.2, 0.97, 0.4]),
                series("vllm:num_preemptions_total", [0, 5, 9]),
            ],
        },
    }
    advice = advice_on(tmp_path, json.dumps(answer))
    values = advice.servers[0].values
    assert values["ttft_mean"] == 5.0 and values["kv_usage"] == 0.97
    assert advice.diagnosis.first == "kv_capacity"
