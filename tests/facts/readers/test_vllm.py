"""vLLM's result files.

What these tests exist for: a goodput that is not vLLM's own; failed requests, which stand in the
file as 0.0, taken for the fastest of all; a chunk taken for a token; a stall averaged away.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.slo import attainment, good, goodput, metric

RUNS = ("low", "overload", "kvfull", "bigbudget", "prefix", "noprefix", "ngram")
THEIR_SLO = "ttft=300ms,tpot=40ms"  # the runs were made with --goodput ttft:300 tpot:40


@pytest.fixture(params=RUNS)
def recorded(request, data_folder):
    path = data_folder("serving-metrics") / f"vllm032_{request.param}.bench.json.gz"
    return readers.read(path), json.loads(gzip.decompress(path.read_bytes()))


def test_goodput_is_vllms_own(recorded):
    log, theirs = recorded
    assert goodput(log, THEIR_SLO).goodput == pytest.approx(theirs["request_goodput"], rel=1e-12)
    assert log.duration == theirs["duration"] and len(log) == theirs["num_prompts"]


def test_all_of_vllms_statistics_come_out(recorded):
    """Of ttft, tpot, gaps between chunks (also where tokens share a chunk) and latency."""
    log, theirs = recorded
    ours = readers.as_vllm(log, THEIR_SLO)
    shared = set(ours) & set(theirs)
    assert len(shared) == 25 and {"p99_itl_ms", "std_tpot_ms", "median_ttft_ms"} < shared
    for name in shared:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-9), name


def test_bigbudget(bigbudget):
    """Its tpot hides what a limit on the largest gap shows."""
    log = readers.read(bigbudget)
    assert attainment(log, THEIR_SLO) == 0.5625
    with_stall = attainment(log, f"{THEIR_SLO},stall=100ms")
    assert with_stall == 22 / 80 and round(with_stall, 2) == 0.28
    requested, achieved = log.meta["arrivals"]["requested"], log.meta["arrivals"]["achieved"]
    assert requested == 6.0 and achieved == pytest.approx(5.9855, abs=1e-4)
    assert "not tokens" in log.meta["definitions"]["gap"]
    assert log.meta["data"]["kind"] == "real" and len(log.meta["data"]["sha256"]) == 64
    assert log.requests["arrival"][0] == 0 and log.meta["clock"]["origin"] == 1091.900943578


def test_columns(save, vllm_run):
    log = readers.read(save(vllm_run, pack=True, name="plain.json"))
    np.testing.assert_allclose(log.requests["arrival"], [0, 2, 4, 6])
    np.testing.assert_allclose(metric(log, "ttft"), [0.25, 0.125, np.nan, 0.5])
    np.testing.assert_allclose(metric(log, "e2e"), [0.5501, 0.1373, np.nan, 0.5])
    assert log.requests["prompt_tokens"].tolist() == [100, 200, 300, 400]
    assert log.meta["client_queue"] == {"mean": 0.001, "max": 0.003}
    assert log.meta["errors"] == {"ValueError: refused": 1}
    assert {"queued", "scheduled", "preemptions"} < set(log.meta["missing"])
    assert metric(log, "queue") is None  # a client cannot know it


def test_a_failed_request_meets_no_limit(save, vllm_run):
    """0.0 s is below any limit; and vLLM's own rate has no denominator to miss it from."""
    log = readers.read(save(vllm_run))
    assert log.requests["status"].tolist() == ["finished", "finished", "failed", "finished"]
    assert good(log, "ttft=10,tpot=5,stall=10").tolist() == [True, True, False, True]
    assert goodput(log, "ttft=10").attainment == 0.75


@pytest.mark.parametrize("error", ["ClientError", ""])
def test_a_request_that_broke_off(save, vllm_run, error):
    """It got a first token and gaps, but no latency; a refusal may have no reason given."""
    vllm_run["errors"][2] = error
    vllm_run["ttfts"][2], vllm_run["itls"][2] = 0.125, [0.01, 0.02]
    log = readers.read(save(vllm_run))
    assert log.requests["status"][2] == "failed" and log.requests["output_tokens"][2] == 0
    assert log.gaps.counts().tolist() == [3, 1, 0, 0]


def test_tokens_that_share_a_chunk(save, vllm_run):
    """Nine tokens in four chunks: three gaps, five zeros. Not a gap per chunk."""
    vllm_run["output_lens"][0] = 9
    log = readers.read(save(vllm_run))
    np.testing.assert_allclose(log.gaps.row(0), [0.0317, 0.0173, 0.2511, 0, 0, 0, 0, 0])
    assert log.meta["chunks"]["zeros_added"] == 5
    assert log.meta["chunks"]["requests_with_shared_chunks"] == 1


def test_chunks_without_a_token(save, vllm_run):
    """A chat's first chunk has only the role: the time until the last stays, the stall too."""
    vllm_run["output_lens"] = [3, 1, 0, 1]
    log = readers.read(save(vllm_run))
    np.testing.assert_allclose(log.gaps.row(0), [0.0317, 0.0173 + 0.2511])
    assert log.gaps.counts().tolist() == [2, 0, 0, 0]
    assert log.meta["chunks"]["chunks_merged"] == 1


def test_an_older_file(save, vllm_run):
    """No latencies, no start times: arrivals are unknown and said to be, ttft and tpot are not."""
    del vllm_run["latencies"], vllm_run["start_times"], vllm_run["queue_times"]
    log = readers.read(save(vllm_run))
    np.testing.assert_allclose(metric(log, "ttft"), [0.25, 0.125, np.nan, 0.5])
    np.testing.assert_allclose(metric(log, "tpot")[0], 0.3001 / 3)
    assert log.meta["arrivals"]["achieved"] is None and "arrival" in log.meta["missing"]
    assert log.meta["clock"]["of"] == "each request"
    assert goodput(log, "ttft=0.3").goodput == pytest.approx(0.2)  # per second of the file's own


@pytest.mark.parametrize("rate", ["inf", float("inf"), None])
def test_all_at_once(save, vllm_run, rate):
    vllm_run["request_rate"] = rate
    assert readers.read(save(vllm_run)).meta["arrivals"]["requested"] is None


def test_not_streamed(save, vllm_run):
    """An answer in one piece has no gaps: unavailable, not zeros that pass every limit."""
    vllm_run["itls"] = [[], [], [], []]
    log = readers.read(save(vllm_run))
    assert log.gaps is None and "gaps" in log.meta["missing"]
    assert goodput(log, "stall=1").unavailable == ("stall",)


def test_without_a_first_token_time(save, vllm_run):
    """ttft 0.0 for all means that it was not measured."""
    vllm_run["ttfts"] = [0.0] * 4
    log = readers.read(save(vllm_run))
    assert metric(log, "ttft") is None and "first_token" in log.meta["missing"]


def test_an_answer_without_tokens_is_not_good(save, vllm_run):
    """It ended well, but there was nothing to read: no ttft, so no limit on it is met."""
    vllm_run["output_lens"][1], vllm_run["itls"][1] = 0, []
    log = readers.read(save(vllm_run))
    assert log.requests["status"][1] == "finished"
    assert good(log, "ttft=10").tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"completed": 4}, "completed: 4; the arrays have 3 requests without an error"),
        ({"ttfts": [0.1, 0.2]}, "must have 2 values as ttfts has, one per request"),
        ({"ttfts": [0.1, "0.2", 0.3, 0.4]}, "ttfts[1]: '0.2'; must be seconds from 0 to 1e+07"),
        ({"ttfts": [0.1, True, 0.3, 0.4]}, "ttfts[1]: True"),
        ({"ttfts": [0.1, float("nan"), 0.3, 0.4]}, "ttfts[1]: nan"),
        ({"ttfts": [0.1, 10**400, 0.3, 0.4]}, "ttfts[1]: an integer of about 39"),
        ({"itls": [[0.1], [-0.1], [], []]}, "itls[1][0]: -0.1; must be seconds from 0"),
        ({"itls": [[0.1], 3, [], []]}, "itls[1]: 3; must be a list"),
        ({"output_lens": [4, 2, 0, 10**12]}, "output_lens[3]: 1000000000000; must be a whole"),
        ({"output_lens": [4.5, 2, 0, 1]}, "output_lens[0]: 4.5"),
        ({"latencies": [550.1, 137.3, 0.0, 500.0]}, "latencies[0]: 550.1; must be ttfts[0] +"),
        ({"latencies": [0.0005501, 0.1373, 0.0, 0.5]}, "latencies[0]: 0.0005501; must be ttfts"),
        ({"start_times": [1.7e12] * 4}, "start_times[0]: 1700000000000.0; must be seconds"),
        ({"errors": ["", "", None, ""]}, "errors[2]: None; must be text"),
        ({"duration": 0}, "duration: 0; must be seconds from 1e-09"),
        ({"duration": None}, "duration: None"),
    ],
)
def test_refusals(save, vllm_run, change, message):
    """One line: the file, the place in it, the value, the limit, the way out."""
    path = save({**vllm_run, **change})
    with pytest.raises(InputError) as refusal:
        readers.read(path)
    text = str(refusal.value)
    assert text.startswith(f"{path}:") and message in text and "\n" not in text
    assert len(text.split("; ")) == 3


def test_without_details(save, vllm_run):
    """The way out is the option that makes vLLM write a value per request."""
    for name in ("input_lens", "output_lens", "ttfts", "itls", "latencies", "errors"):
        del vllm_run[name]
    with pytest.raises(InputError, match="again with --save-result --save-detailed"):
        readers.read(save(vllm_run))


def test_several_runs_in_one_file(save, vllm_run):
    """--append-result puts one run after the other: they are not one run of twice the load."""
    second = {**vllm_run, "duration": 20.0}
    path = save(vllm_run, second, name="appended.json")
    with pytest.raises(InputError, match=r"2 runs in one file.*part, 1 to 2"):
        readers.read(path)
    assert readers.read(path, part=2).duration == 20.0
    with pytest.raises(InputError, match="part 3; the file holds 2; use 1 to 2"):
        readers.read(path, part=3)
