"""SGLang's result files.

What these tests exist for: a stall divided by the tokens of its chunk; arrivals made up; an answer
that never came counted as the fastest.
"""

from __future__ import annotations

import numpy as np
import pytest

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.slo import good, goodput, metric


def test_columns(save, sglang_run):
    """Durations are kept, arrivals are unknown and said to be."""
    log = readers.read(save(sglang_run, name="run.jsonl"))
    assert (log.meta["tool"], log.meta["version"]) == ("sglang bench_serving", "0.5.23")
    np.testing.assert_allclose(metric(log, "ttft"), [0.25, 0.125, np.nan, 0.5])
    np.testing.assert_allclose(metric(log, "e2e")[0], 0.5501)
    assert goodput(log, "ttft=0.3,tpot=0.2").goodput == pytest.approx(0.2)
    assert log.meta["arrivals"] == {"requested": 0.5, "achieved": None, "variation": None}
    assert "arrival" in log.meta["missing"] and log.meta["clock"]["of"] == "each request"


def test_a_failed_request_stays_in_the_denominator(save, sglang_run):
    log = readers.read(save(sglang_run))
    assert log.requests["status"].tolist() == ["finished", "finished", "failed", "finished"]
    assert good(log, "ttft=10,itl=5").tolist() == [True, True, False, True]


def test_a_stall_is_not_divided_by_the_tokens_of_its_chunk(save, sglang_run):
    """The native backend writes a gap of 0.4 s that ended in four tokens as four of 0.1 s."""
    quarter = 0.4012345678901 / 4
    sglang_run["itls"][0] = [0.0212345678901, *[quarter] * 4, 0.0112345678901]
    sglang_run["output_lens"][0] = 7
    log = readers.read(save(sglang_run))
    np.testing.assert_allclose(
        log.gaps.row(0), [0.0212345678901, 0.4012345678901, 0, 0, 0, 0.0112345678901]
    )
    assert good(log, "stall=0.2").tolist() == [False, True, False, True]


def test_tokens_in_the_first_chunk(save, sglang_run):
    """They came with it: gaps of 0 before the others."""
    sglang_run["output_lens"][0] = 6
    log = readers.read(save(sglang_run))
    assert log.gaps.row(0)[:2].tolist() == [0, 0] and log.gaps.row(0)[4] > 0.25


def test_typed_numbers_are_left_alone(save, sglang_run):
    """Equal round numbers are somebody's example, not a clock read twice to the last bit."""
    sglang_run["itls"][0] = [0.02, 0.02, 0.02]
    log = readers.read(save(sglang_run))
    assert log.gaps.row(0).tolist() == [0.02, 0.02, 0.02]


def test_other_backends_write_the_gaps_between_chunks(save, sglang_run):
    quarter = 0.4012345678901 / 4
    sglang_run["backend"] = "sglang-oai"
    sglang_run["itls"][0] = [quarter, quarter]
    log = readers.read(save(sglang_run))
    assert log.gaps.row(0).tolist() == [quarter, quarter, 0]


def test_its_own_statistics_come_out(save, sglang_run):
    """as_sglang gives back the itls of the file, chunk by chunk."""
    third = 0.3012345678901 / 3
    sglang_run["itls"][0] = [third] * 3 + [0.0112345678901]
    sglang_run["output_lens"][0] = 7  # two came with the first chunk
    pooled = np.array(sglang_run["itls"][0] + sglang_run["itls"][1]) * 1e3
    told = readers.as_sglang(readers.read(save(sglang_run)))
    assert told["mean_itl_ms"] == pytest.approx(pooled.mean())
    assert told["median_itl_ms"] == pytest.approx(np.median(pooled))
    assert told["p99_itl_ms"] == pytest.approx(np.percentile(pooled, 99))
    assert told["mean_ttft_ms"] == pytest.approx(np.mean([250, 125, 500]))


def test_an_answer_without_text_failed(save, sglang_run):
    """SGLang counts it as completed with a ttft of 0.0."""
    sglang_run["ttfts"][1], sglang_run["itls"][1] = 0.0, []
    log = readers.read(save(sglang_run))
    assert log.requests["status"].tolist() == ["finished", "failed", "failed", "finished"]
    assert log.meta["without_text"] == 1


def test_cached_tokens(save, sglang_run):
    """Written with --cache-report only: else unknown, not 0."""
    assert "cached_tokens" in readers.read(save(sglang_run)).meta["missing"]
    sglang_run["cached_tokens"] = [64, 0, 0, 128]
    log = readers.read(save(sglang_run))
    assert log.requests["cached_tokens"].tolist() == [64, 0, 0, 128]
    assert "cached_tokens" not in log.meta["missing"]


def test_numbers_that_are_not_json_elsewhere(save, sglang_run):
    """An infinite rate and a NaN mean are written as such: only what is needed must be finite."""
    sglang_run["request_rate"] = float("inf")
    assert readers.read(save(sglang_run)).meta["arrivals"]["requested"] is None
    sglang_run["request_rate"] = "trace"
    assert readers.read(save(sglang_run)).meta["arrivals"]["requested"] is None


def test_a_file_is_appended_to(save, sglang_run):
    path = save(sglang_run, {**sglang_run, "duration": 5.0}, name="runs.jsonl")
    assert readers.read(path, part=2).duration == 5.0
    with pytest.raises(InputError, match="2 runs in one file"):
        readers.read(path)
    with pytest.raises(InputError, match=r"runs.jsonl:2: ttfts\[0\]: 'x'; must be seconds"):
        readers.read(
            save(sglang_run, {**sglang_run, "ttfts": ["x"] * 4}, name="runs.jsonl"), None, 2
        )


def test_without_details(save, sglang_run):
    for name in ("input_lens", "output_lens", "ttfts", "itls", "errors"):
        del sglang_run[name]
    with pytest.raises(InputError, match="again with --output-details"):
        readers.read(save(sglang_run))
