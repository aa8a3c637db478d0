"""One run in each tool's words, and the table of all.

What these tests exist for: one tool's word under another's definition. Numbers are worked out by
hand from four requests: smooth, one with a stall, one of a single token, one that failed.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests

GAPS = [[0.1, 0.1, 0.1, 0.1], [0.1, 0.0, 0.5], [], []]
TTFT = [0.2, 0.4, 0.6]
SLO = "ttft=0.5,tpot=0.15"


@pytest.fixture
def run() -> RunLog:
    """Over 10 s. tpot: 0.1 and 0.2 s; ttft: 0.2, 0.4 and 0.6 s; e2e: 0.6, 1.0 and 0.6 s."""
    requests = blank_requests(4)
    requests["arrival"] = np.array([0.0, 1.0, 2.0, 3.0])
    requests["first_token"] = requests["arrival"] + np.array([*TTFT, np.nan])
    spans = np.array([sum(row) for row in GAPS])
    requests["finish"] = requests["first_token"] + spans
    requests["output_tokens"] = np.array([5, 4, 1, 0])
    requests["status"][:3] = "finished"
    meta = {"duration": 10.0, "chunks": {"zeros_placed": True}}
    return RunLog(requests, GapLists.of(GAPS), None, meta).check()


def test_vllm(run):
    """Gaps between chunks: no zeros. One token passes tpot. The failed one is in no number."""
    told = readers.as_vllm(run, "ttft=1,tpot=0.15")
    assert told["completed"] == 3 and told["duration"] == 10.0
    assert told["mean_ttft_ms"] == pytest.approx(400) and told["mean_tpot_ms"] == pytest.approx(150)
    pooled = [100] * 5 + [500]
    assert told["mean_itl_ms"] == pytest.approx(np.mean(pooled))
    assert told["p99_itl_ms"] == pytest.approx(np.percentile(pooled, 99))
    assert told["p99_e2el_ms"] == pytest.approx(np.percentile([600, 1000, 600], 99))
    assert told["request_goodput"] == pytest.approx(0.2)  # the smooth one and the single token
    assert readers.as_vllm(run)["request_goodput"] is None


def test_sglang(run):
    """The chunk of two tokens gives two itls of half its gap; the share is of all four sent."""
    told = readers.as_sglang(run, "ttft=1,tpot=0.15")
    spread = [100] * 4 + [50] * 2 + [500]
    assert told["mean_itl_ms"] == pytest.approx(np.mean(spread))
    assert told["std_itl_ms"] == pytest.approx(np.std(spread))
    assert told["goodput_share"] == pytest.approx(2 / 4)


def test_sglang_where_chunks_are_unknown(run):
    """The mean does not depend on which tokens shared a chunk; the percentiles do."""
    run.meta["chunks"]["zeros_placed"] = False
    told = readers.as_sglang(run)
    assert told["mean_itl_ms"] == pytest.approx(1000 / 7)
    assert told["median_itl_ms"] is None and told["p99_itl_ms"] is None


def test_aiperf(run):
    """inter_token_latency is tpot; one token has none and is not good; failed ones count."""
    told = readers.as_aiperf(run, "ttft=1,tpot=0.15")
    assert told["inter_token_latency"]["avg"] == pytest.approx(150)
    assert told["inter_chunk_latency"]["avg"] == pytest.approx(1000 / 6)
    assert told["error_request_count"] == 1 and told["good_request_count"] == 1
    assert told["good_request_fraction"] == 1 / 4
    assert told["goodput"] == pytest.approx(1 / 2.6)  # its own span: of completed ones


def test_guidellm(run):
    """tpot includes the first token and is weighted by tokens; a limit on it means its itl."""
    told = readers.as_guidellm(run, "ttft=1,tpot=0.15")
    assert told["time_per_output_token_ms"]["mean"] == pytest.approx(2200 / 10)
    assert told["inter_token_latency_ms"]["mean"] == pytest.approx(1000 / 7)
    assert told["time_to_first_token_ms"]["median"] == pytest.approx(400)
    assert told["inter_token_latency_ms"]["p90"] == pytest.approx(200)
    assert told["slo_determined_requests"] == 3  # the single token is left out, the failed is bad
    assert told["slo_attainment"] == pytest.approx(1 / 3)


def test_guidellms_percentiles_are_values_of_the_run(run):
    """Where the cumulated weight reaches q, not between two values."""
    told = readers.as_guidellm(run)["request_latency"]
    assert told["median"] == pytest.approx(0.6) and told["p90"] == pytest.approx(1.0)


def test_inference_perf(run):
    """Zeros within a chunk are gaps; a single token has no ttft; goodput is over successes."""
    told = readers.as_inference_perf(run, "ttft=1,tpot=0.15")
    assert told["time_to_first_token"]["mean"] == pytest.approx(0.3)
    assert told["inter_token_latency"]["mean"] == pytest.approx(1 / 7)
    assert told["normalized_time_per_output_token"]["mean"] == pytest.approx(
        np.mean([0.6 / 5, 1.0 / 4, 0.6])
    )
    assert told["failures"] == 1 and told["goodput_percentage"] == pytest.approx(100 / 3)
    mean_gap = readers.as_inference_perf(run, "itl=0.15")  # the mean of the request's own gaps
    assert mean_gap["good_requests"] == 1


def test_llmperf(run):
    """Its inter-token latency is the whole latency over all tokens."""
    told = readers.as_llmperf(run)
    each = [0.6 / 5, 1.0 / 4, 0.6]
    assert told["inter_token_latency_s"]["mean"] == pytest.approx(np.mean(each))
    assert told["error_rate"] == 0.25 and told["num_requests_started"] == 4


def test_a_limit_that_a_tool_does_not_know(run):
    """None, not a goodput under fewer limits than asked for."""
    assert readers.as_vllm(run, "stall=0.2")["request_goodput"] is None
    assert readers.as_aiperf(run, "ttft=1,stall=0.2")["good_request_fraction"] is None
    assert readers.as_guidellm(run, "itl=0.2")["slo_attainment"] is None


def test_limits_by_class(run):
    with pytest.raises(InputError, match="benchmark tools know one set"):
        readers.as_vllm(run, "chat:ttft=0.5;batch:e2e=30")


def test_what_a_log_cannot_tell_is_none(run):
    """Without gaps and first tokens: no zeros in their place."""
    run.requests["first_token"][:] = np.nan
    bare = RunLog(run.requests, None, None, {})
    for call in (readers.as_vllm, readers.as_sglang):
        told = call(bare, SLO)
        assert told["mean_ttft_ms"] is None and told["p99_itl_ms"] is None
        assert told["request_goodput"] is None
    assert readers.as_aiperf(bare, SLO)["inter_chunk_latency"] is None
    assert readers.as_guidellm(bare, SLO)["inter_token_latency_ms"] is None
    assert readers.as_inference_perf(bare, SLO)["goodput_percentage"] is None
    assert readers.as_llmperf(bare)["ttft_s"] is None


def test_nothing_finished():
    """No mean of nothing; a share of 0 where there were requests."""
    log = RunLog(blank_requests(2), GapLists.of([[], []]), None, {"duration": 1.0})
    log.requests["arrival"][:] = 0.0
    rows = readers.compare([log], SLO)
    assert {row["tool"]: row["good"] for row in rows} == {
        "minilab": 0.0, "vllm": None, "sglang": 0.0, "aiperf": 0.0, "guidellm": 0.0,
        "inference-perf": None, "llmperf": None,
    }  # fmt: skip
    assert all(row["ttft"] is None and row["itl"] is None for row in rows)


def test_the_table(run):
    """One run, seven answers: the same words, different numbers."""
    rows = {row["tool"]: row for row in readers.compare([run], "ttft=1,tpot=0.15")}
    assert list(rows) == ["minilab", *readers.TOOLS]
    assert {tool: row["good"] for tool, row in rows.items()} == {
        "minilab": 0.5, "vllm": None, "sglang": 0.5, "aiperf": 0.25,
        "guidellm": pytest.approx(1 / 3), "inference-perf": pytest.approx(1 / 3), "llmperf": None,
    }  # fmt: skip
    tpot = {tool: row["tpot"] and row["tpot"]["mean"] for tool, row in rows.items()}
    assert tpot["vllm"] == pytest.approx(0.15) and tpot["guidellm"] == pytest.approx(0.22)
    assert tpot["llmperf"] is None
    itl = [tuple(round(value, 6) for value in row["itl"].values()) for row in rows.values()]
    assert len(set(itl)) == 5  # vLLM's is aiperf's; SGLang's differs from inference-perf's in std
    assert all(set(row["words"]) == {"ttft", "tpot", "itl", "goodput"} for row in rows.values())
    json.dumps(list(rows.values()), allow_nan=False)


def test_the_table_of_files(bigbudget, guidellm_file):
    rows = readers.compare([bigbudget, guidellm_file], "ttft=300ms,tpot=40ms")
    assert [row["run"] for row in rows[::7]] == [bigbudget.name, guidellm_file.name]
    by_tool = {row["tool"]: row for row in rows[:7]}
    assert by_tool["vllm"]["itl"]["p99"] == pytest.approx(0.28819, abs=1e-5)
    assert by_tool["minilab"]["itl"]["p99"] == pytest.approx(0.44526, abs=1e-5)
    assert by_tool["guidellm"]["itl"]["p99"] == pytest.approx(0.06446, abs=1e-5)
    assert rows[7]["itl"] is None and rows[8]["itl"] is None  # guidellm's file has no gaps
    assert rows[11]["itl"]["mean"] == pytest.approx(0.012404, abs=1e-6)  # its own itl needs none


def test_a_simulators_runs_of_steps(small_log):
    """Gaps as runs of steps are the same gaps."""
    of_runs, of_lists = (readers.compare([small_log(form)]) for form in ("runs", "lists"))
    assert of_runs == of_lists
