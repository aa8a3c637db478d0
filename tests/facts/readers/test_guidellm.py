"""guidellm's report.

What these tests exist for: a limit on gaps that passes because the file has none; its tpot, which
includes the first token, taken for ours; the rate asked for reported as the rate achieved.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.slo import attainment, good, goodput, metric


@pytest.mark.parametrize("word", ["itl", "stall"])
def test_gaps_are_unavailable_not_passed(guidellm_file, word):
    log = readers.read(guidellm_file)
    result = goodput(log, f"ttft=10,{word}=5")
    assert log.gaps is None and "gaps" in log.meta["missing"]
    assert result.attainment is None and result.goodput is None
    assert result.unavailable == (word,) and "gaps between tokens" in result.reason
    assert attainment(log, "ttft=10") == 1.0  # only what is missing is missing


def test_tpot_is_without_the_first_token(guidellm_file, guidellm_report):
    log = readers.read(guidellm_file)
    requests = guidellm_report["benchmarks"][0]["requests"]["successful"]
    theirs = sorted(requests, key=lambda r: r["request_start_time"])
    between = [r["inter_token_latency_ms"] / 1e3 for r in theirs]
    np.testing.assert_allclose(metric(log, "tpot"), between, rtol=1e-6)
    assert (metric(log, "tpot") < [r["time_per_output_token_ms"] / 1e3 for r in theirs]).all()
    ttft = [r["time_to_first_token_ms"] / 1e3 for r in theirs]
    np.testing.assert_allclose(metric(log, "ttft"), ttft, rtol=1e-6)


def test_its_statistics_come_out(guidellm_file, guidellm_report):
    """Weighted by tokens, percentiles that are values of the run."""
    ours = readers.as_guidellm(readers.read(guidellm_file))
    metrics = guidellm_report["benchmarks"][0]["metrics"]
    for name in ("time_to_first_token_ms", "time_per_output_token_ms", "inter_token_latency_ms"):
        theirs = metrics[name]["successful"]
        assert ours[name]["mean"] == pytest.approx(theirs["mean"], rel=1e-7)
        assert ours[name]["median"] == pytest.approx(theirs["median"], rel=1e-6)
        for p in ("p90", "p99"):
            assert ours[name][p] == pytest.approx(theirs["percentiles"][p], rel=1e-6), (name, p)


def test_arrivals_as_they_were(guidellm_file):
    """A clock fault in the client sent all at once: 4 requests/s were asked for."""
    log = readers.read(guidellm_file)
    assert log.meta["arrivals"]["requested"] == 4.0
    assert log.meta["arrivals"]["achieved"] == pytest.approx(19 / 0.0777745, rel=1e-4)
    assert log.duration == pytest.approx(0.52958345) and log.meta["version"] == "0.8.1"
    assert 0.02 < log.meta["client_queue"]["mean"] < 0.05


def test_errored_and_cut_off_ones(save, guidellm_report):
    """Both stay in our denominator; guidellm leaves the cut-off ones out of its own."""
    benchmark = guidellm_report["benchmarks"][0]
    done = benchmark["requests"]["successful"]
    bad, cut = done.pop(), done.pop()
    bad["info"]["error"] = "HTTP 500"
    for name in ("first_token_iteration", "last_token_iteration", "request_end"):
        cut["info"]["timings"][name] = None
    cut["output_tokens"] = None
    benchmark["requests"]["errored"], benchmark["requests"]["incomplete"] = [bad], [cut]
    log = readers.read(save(guidellm_report))
    assert sorted(log.requests["status"])[:2] == ["aborted", "failed"]
    assert good(log, "ttft=10").sum() == 18 and attainment(log, "ttft=10") == 0.9
    assert readers.as_guidellm(log, "ttft=10")["slo_attainment"] == pytest.approx(18 / 19)
    assert log.meta["errors"] == {"HTTP 500": 1}


def test_one_benchmark_for_each_load(save, guidellm_report):
    second = copy.deepcopy(guidellm_report["benchmarks"][0])
    second["duration"] = 2.0
    guidellm_report["benchmarks"].append(second)
    path = save(guidellm_report)
    with pytest.raises(InputError, match=r"2 runs in one file.*part, 1 to 2"):
        readers.read(path)
    assert readers.read(path, part=2).duration == 2.0


def test_a_sample_is_refused(save, guidellm_report):
    """20 of 1,000 requests over the whole duration would be a fiftieth of the goodput."""
    guidellm_report["benchmarks"][0]["metrics"]["request_totals"]["total"] = 1000
    with pytest.raises(InputError, match=r"total: 1000; the file keeps 20 .*without a sample"):
        readers.read(save(guidellm_report))


def test_another_version(save, guidellm_report):
    guidellm_report["metadata"]["version"] = 3
    with pytest.raises(InputError, match=r"metadata.version: 3; .* versions 1 to 2; .*upgrade"):
        readers.read(save(guidellm_report))


@pytest.mark.parametrize(
    "field, message",
    [
        ("output_tokens", r"successful\[4\]\.output_tokens: None; .* how many tokens"),
        ("info", r"successful\[4\]\.info: None; must be an object with 'timings'"),
    ],
)
def test_refusals(save, guidellm_report, field, message):
    guidellm_report["benchmarks"][0]["requests"]["successful"][4][field] = None
    with pytest.raises(InputError, match=message):
        readers.read(save(guidellm_report))
