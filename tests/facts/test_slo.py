"""Metric words, SLOs and goodput.

What these tests exist for: a metric that is missing and counts as met; a failure that leaves the
denominator; a stall hidden by a mean; milliseconds read as seconds; a class judged by no SLO.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts.confidence import t_quantile
from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.slo import (
    METRICS,
    SLO,
    SLOSet,
    attainment,
    attainment_ci,
    bootstrap_ci,
    by_prompt_length,
    cost_per_good_request,
    good,
    goodput,
    mean_ci,
    metric,
    summary,
    unavailable,
)


def served(rows: list[tuple[float, float, list[float]]], **labels: list[str]) -> RunLog:
    """A finished request per (arrival, ttft, gaps); columns may be changed afterwards."""
    requests = blank_requests(len(rows))
    requests["arrival"] = np.array([row[0] for row in rows], dtype=float)
    requests["queued"] = requests["arrival"].copy()
    requests["scheduled"] = requests["arrival"] + np.array([row[1] / 2 for row in rows])
    requests["first_token"] = requests["arrival"] + np.array([row[1] for row in rows])
    requests["finish"] = requests["first_token"] + np.array([math.fsum(row[2]) for row in rows])
    requests["output_tokens"] = np.array([len(row[2]) + 1 for row in rows], dtype=np.int64)
    requests["prompt_tokens"] = np.arange(1, len(rows) + 1) * 100
    requests["status"][:] = "finished"
    for name, values in labels.items():
        requests[name][:] = values
    return RunLog(requests, GapLists.of([row[2] for row in rows])).check()


def three() -> RunLog:
    """Smooth; one stall; one token."""
    return served([(0.0, 0.2, [0.01] * 200), (1.0, 0.4, [0.01] * 9 + [0.5]), (2.0, 0.6, [])])


def fail(log: RunLog, row: int, status: str = "failed") -> RunLog:
    requests = {name: column.copy() for name, column in log.requests.items()}
    requests["status"][row] = status
    return RunLog(requests, log.gaps, log.series, log.meta)


def without(log: RunLog, *columns: str, gaps: bool = True) -> RunLog:
    requests = {name: column.copy() for name, column in log.requests.items()}
    for name in columns:
        requests[name][:] = np.nan
    return RunLog(requests, log.gaps if gaps else None)


# ---------------------------------------------------------------- the dictionary


def test_each_metric_by_hand() -> None:
    log = three()
    want = {
        "ttft": [0.2, 0.4, 0.6],
        "tpot": [0.01, 0.059, np.nan],
        "itl": [0.01, np.quantile([0.01] * 9 + [0.5], 0.99), np.nan],
        "stall": [0.01, 0.5, np.nan],
        "e2e": [2.2, 0.99, 0.6],
        "queue": [0.1, 0.2, 0.3],
    }
    assert list(want) == list(METRICS)
    for name, values in want.items():
        np.testing.assert_allclose(metric(log, name), values, rtol=1e-12)


def test_a_mean_hides_the_stall_that_itl_and_stall_show() -> None:
    log = served([(0.0, 0.1, [0.01] * 98 + [0.9, 0.9])])
    assert attainment(log, "tpot=0.05") == 1.0
    assert attainment(log, "itl=0.05") == 0.0 and attainment(log, "stall=0.05") == 0.0


def test_failed_requests_have_no_end_to_end_time() -> None:
    # a request turned away at once would otherwise improve the e2e quantiles
    log = fail(three(), 0, "rejected")
    assert np.isnan(np.asarray(metric(log, "e2e"))[0])
    assert np.isnan(np.asarray(metric(log, "tpot"))[0])


def test_unknown_metric_names_the_closest() -> None:
    with pytest.raises(InputError, match="'tftt': unknown, did you mean 'ttft'; known: ttft, tpot"):
        metric(three(), "tftt")


def test_every_word_is_defined_with_what_others_call_it() -> None:
    for name, word in METRICS.items():
        assert word.name == name and word.unit == "s"
        assert len(word.definition) > 15 and len(word.elsewhere) > 15


# ---------------------------------------------------------------- reading SLOs


def test_slo_text_in_seconds_and_with_units() -> None:
    slo = SLO.parse(" itl = 50ms , ttft=0.5s")
    assert isinstance(slo, SLO)
    assert slo.limits == (("ttft", 0.5), ("itl", 0.05))
    assert SLO.parse(str(slo)) == slo == SLO.of({"itl": 0.05, "ttft": 0.5})
    assert SLO.parse("e2e=1.5e3ms") == SLO.of({"e2e": 1.5})


def test_slo_classes_and_default() -> None:
    slos = SLO.parse("chat:ttft=0.5,itl=0.05; batch:e2e=30")
    assert isinstance(slos, SLOSet) and slos.default is None
    assert slos.for_class("batch") == SLO.of({"e2e": 30})
    with_default = SLOSet.parse("ttft=1;batch:e2e=30")
    assert with_default.for_class("anything") == SLO.of({"ttft": 1})
    for each in (slos, with_default):
        assert SLOSet.parse(str(each)) == each


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("itl=61", r"itl=61: times are in seconds; did you mean 61ms\? \(write 61s if"),
        ("itl=50", r"did you mean 50ms\?"),
        ("tpot=40", r"did you mean 40ms\?"),
        ("ttft=500", r"did you mean 500ms\?"),
        ("e2e=30000", r"did you mean 30000ms\?"),
        ("ttft=0.5,ttft=0.6", r"ttft: given twice"),
        ("tttf=0.5", r"'tttf': unknown, did you mean 'ttft'; known: ttft, tpot, itl"),
        ("e2el=5", r"'e2el': unknown, did you mean 'e2e'"),
        ("itl=-0.05", r"itl=-0.05: must be above 0"),
        ("itl=0", r"itl=0: must be above 0"),
        ("itl=nan", r"'nan' is not a time"),
        ("itl=inf", r"'inf' is not a time"),
        ("itl=1e999", r"must be above 0 and finite"),
        ("itl=5min", r"'5min' is not a time"),
        ("itl=0_5", r"'0_5' is not a time"),
        ("itl", r"'itl': no time given; write metric=seconds, such as"),
        ("itl=", r"no time given"),
        ("", r"'': no time given"),
        ("ttft=0.5,", r"'': no time given"),
        ("ttft:300", r"'ttft:300': write metric=seconds"),
        ("ttft=1;itl=1", r"two defaults; name the classes"),
        ("a:ttft=1;a:itl=1", r"class 'a' twice"),
        (":ttft=1", r"a class without a name"),
        ("chat:", r"'': no time given"),
    ],
)
def test_bad_slo_text_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        SLO.parse(text)
    assert "\n" not in str(caught.value)


def test_a_large_time_with_its_unit_is_meant() -> None:
    assert SLO.parse("itl=61s") == SLO.of({"itl": 61})
    assert SLO.parse("ttft=500ms") == SLO.of({"ttft": 0.5})


@pytest.mark.parametrize("limits", [{}, {"ttft": math.nan}, {"ttft": math.inf}, {"speed": 1.0}])
def test_limits_given_as_numbers_obey_the_same_rules(limits: dict[str, float]) -> None:
    with pytest.raises(InputError):
        SLO.of(limits)


# ---------------------------------------------------------------- who is good


def test_good_needs_every_limit_and_a_finish() -> None:
    log = three()
    assert good(log, "ttft=0.5,stall=0.1").tolist() == [True, False, False]
    assert good(log, "ttft=0.5").tolist() == [True, True, False]
    assert good(fail(log, 0), "ttft=0.5").tolist() == [False, True, False]


def test_one_token_outputs_pass_every_limit_between_tokens() -> None:
    log = served([(0.0, 0.1, []), (0.0, 0.1, [0.3])])
    for slo in ("itl=0.01", "tpot=0.01", "stall=0.01"):
        assert good(log, slo).tolist() == [True, False]
    assert good(log, "ttft=0.05").tolist() == [False, False]


def test_a_limit_equal_to_the_value_is_met_whatever_was_rounded() -> None:
    # 0.05 s on the tick grid is a little above or below 0.05
    log = served([(0.1, 0.5, [0.05 + 3e-14] * 5)])
    assert log.requests["first_token"][0] - log.requests["arrival"][0] != 0.05
    assert attainment(log, "ttft=0.5,itl=0.05,stall=0.05,tpot=0.05") == 1.0
    assert attainment(log, "itl=0.049999") == 0.0


def test_each_class_is_judged_by_its_own_slo() -> None:
    rows = [(0.0, 0.4, [0.01]), (0.0, 2.0, [0.5]), (0.0, 2.0, [0.5])]
    log = served(rows, slo_class=["chat", "batch", "chat"], tenant=["a", "a", "b"])
    result = goodput(log, "chat:ttft=0.5;batch:e2e=30;vip:ttft=0.1")
    assert good(log, "chat:ttft=0.5;batch:e2e=30").tolist() == [True, True, False]
    shares = {name: (s.good, s.total) for name, s in result.by_class.items()}
    assert shares == {"batch": (1, 1), "chat": (1, 2)}
    assert {n: s.attainment for n, s in result.by_tenant.items()} == {"a": 1.0, "b": 0.0}
    assert sum(s.goodput or 0 for s in result.by_tenant.values()) == pytest.approx(result.goodput)
    assert result.unused_classes == ("vip",)


def test_a_class_without_an_slo_is_refused_not_passed() -> None:
    log = served([(0.0, 0.1, [])], slo_class=["chta"])
    for judge in (good, attainment, goodput, unavailable):
        with pytest.raises(
            InputError, match=r"class 'chta' have none \(classes with one: 'chat'\)"
        ):
            judge(log, "chat:ttft=0.5")
    assert attainment(log, "chat:ttft=0.01;ttft=1") == 1.0


@pytest.mark.parametrize(
    ("log", "slo", "missing"),
    [
        (without(three(), gaps=False), "ttft=9,itl=4", ("itl",)),
        (without(three(), gaps=False), "stall=9", ("stall",)),
        (without(three(), "first_token"), "ttft=9,tpot=4", ("ttft", "tpot")),
        (without(three(), "scheduled"), "queue=9", ("queue",)),
        (without(three(), "arrival", "finish"), "ttft=9,e2e=9", ("ttft", "e2e")),
    ],
)
def test_a_metric_the_log_cannot_tell_is_never_passed(log, slo, missing) -> None:
    result = goodput(log, slo)
    assert unavailable(log, slo) == result.unavailable == missing
    assert attainment(log, slo) is None
    assert (result.attainment, result.good, result.goodput, result.goodput_per_gpu) == (None,) * 4
    assert result.reason is not None and missing[0] in result.reason and "lacks" in result.reason
    assert result.by_class == result.by_tenant == {}
    with pytest.raises(InputError, match="cannot tell"):
        good(log, slo)
    for name in missing:
        assert metric(log, name) is None and summary(log)[name] is None


def test_a_run_in_which_nothing_finished_has_attainment_zero() -> None:
    requests = blank_requests(4)
    requests["arrival"] = np.arange(4.0)
    log = RunLog(requests, GapLists.of([[]] * 4), meta={"duration": 10.0})
    result = goodput(log, "ttft=1,itl=1")
    assert (result.attainment, result.goodput, result.unavailable) == (0.0, 0.0, ())


def test_goodput_by_hand() -> None:
    log = three()  # first arrival 0, last finish 2.6
    result = goodput(log, "ttft=0.5,stall=0.1", gpus=2)
    assert (result.good, result.total, result.completed) == (1, 3, 3)
    assert result.goodput == pytest.approx(1 / 2.6)
    assert result.goodput_per_gpu == pytest.approx(1 / 5.2)
    assert result.throughput == pytest.approx(3 / 2.6)
    longer = RunLog(log.requests, log.gaps, meta={"duration": 10.0})
    assert goodput(longer, "ttft=0.5").goodput == pytest.approx(0.2)
    json.dumps(result.as_dict(), allow_nan=False)


def test_no_requests_and_no_time_are_none_with_a_reason() -> None:
    empty = goodput(RunLog(blank_requests(0)), "ttft=1")
    assert (empty.attainment, empty.goodput, empty.reason) == (
        None,
        None,
        "the log has no requests",
    )
    instant = goodput(served([(0.0, 0.0, [])]), "ttft=1")
    assert instant.attainment == 1.0 and instant.goodput is None
    assert "no duration" in (instant.reason or "")
    with pytest.raises(InputError, match="0 GPUs"):
        goodput(three(), "ttft=1", gpus=0)


ROWS = st.lists(
    st.tuples(
        st.floats(0, 50),
        st.floats(0, 2),
        st.lists(st.floats(0, 0.5), max_size=6),
    ),
    min_size=1,
    max_size=12,
)
LIMITS = st.dictionaries(st.sampled_from(sorted(METRICS)), st.floats(0.01, 3), min_size=1)


@settings(max_examples=150, deadline=None)
@given(ROWS, LIMITS, st.floats(1, 3), st.data())
def test_looser_limits_and_fewer_limits_never_lose_a_good_request(rows, limits, factor, data):
    log = served(rows)
    now = good(log, SLO.of(limits))
    looser = good(log, SLO.of({name: seconds * factor for name, seconds in limits.items()}))
    fewer = data.draw(st.sets(st.sampled_from(sorted(limits)), min_size=1))
    assert (looser | ~now).all()
    assert (good(log, SLO.of({name: limits[name] for name in fewer})) | ~now).all()


@settings(max_examples=150, deadline=None)
@given(ROWS, LIMITS, st.data())
def test_a_failure_of_a_good_request_lowers_attainment(rows, limits, data) -> None:
    log, slo = served(rows), SLO.of(limits)
    row = data.draw(st.integers(0, len(rows) - 1))
    before, after = good(log, slo), attainment(fail(log, row), slo)
    assert after == pytest.approx((before.sum() - before[row]) / len(rows))
    result = goodput(fail(log, row), slo)
    assert (result.attainment, result.total) == (after, len(rows))


@settings(max_examples=150, deadline=None)
@given(ROWS, LIMITS, st.floats(0.5, 16))
def test_goodput_is_at_most_throughput_and_buckets_add_up(rows, limits, gpus) -> None:
    log, slo = served(rows), SLO.of(limits)
    result = goodput(log, slo, gpus)
    if result.goodput is not None and result.throughput is not None:
        assert 0 <= result.goodput <= result.throughput
        assert result.goodput_per_gpu == pytest.approx(result.goodput / gpus)
    buckets = by_prompt_length(log, [150, 450], slo)
    assert sum(row["n"] for row in buckets) == len(log)
    hits = sum(row["n"] * row["attainment"] for row in buckets if row["n"])
    assert hits == pytest.approx(result.good)


# ---------------------------------------------------------------- tables


def test_summary_pools_gaps_apart_from_itl() -> None:
    log = three()
    found = summary(log)
    json.dumps(found, allow_nan=False)
    pooled = np.concatenate([log.gaps.row(r) for r in range(3)])  # type: ignore[union-attr]
    assert found["gap"]["p99"] == pytest.approx(np.quantile(pooled, 0.99))
    assert found["gap"]["mean"] == pytest.approx(pooled.mean())
    itl = np.asarray(metric(log, "itl"))[:2]  # the one-token request has none
    assert found["itl"]["p90"] == pytest.approx(np.quantile(itl, 0.9))
    assert found["itl"]["mean"] == pytest.approx(itl.mean())
    assert summary(without(log, gaps=False))["gap"] is None


def test_prompt_length_buckets_hold_the_edge_on_their_left() -> None:
    log = three()  # prompts of 100, 200, 300 tokens
    rows = by_prompt_length(log, [200, 1000])
    assert [(row["from"], row["to"], row["n"]) for row in rows] == [
        (0, 200, 1),
        (200, 1000, 2),
        (1000, None, 0),
    ]
    assert rows[0]["ttft"]["p99"] == pytest.approx(0.2)
    assert rows[1]["ttft"]["p50"] == pytest.approx(0.5)
    assert rows[2]["ttft"] is None and "attainment" not in rows[0]
    assert by_prompt_length(without(log, gaps=False), [200], "itl=1")[0]["attainment"] is None
    for edges in ([200, 100], [0, 5], [5, 5]):
        with pytest.raises(InputError, match="edges must rise"):
            by_prompt_length(log, edges)


def test_cost_per_good_request() -> None:
    result = goodput(RunLog(three().requests, meta={"duration": 3600.0}), "ttft=0.5", gpus=4)
    assert cost_per_good_request(result, 2.0) == pytest.approx(4 * 2.0 / 2)  # 2 good in an hour
    assert cost_per_good_request(result, 2.0, gpus=1) == pytest.approx(1.0)
    assert cost_per_good_request(goodput(three(), "ttft=0.001"), 2.0) is None
    assert cost_per_good_request(goodput(without(three(), gaps=False), "itl=1"), 2.0) is None
    with pytest.raises(InputError, match="price -1"):
        cost_per_good_request(result, -1)


# ---------------------------------------------------------------- confidence


def test_t_quantiles_of_the_printed_table() -> None:
    table = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 9: 2.26216, 30: 2.04227, 120: 1.97993}
    for dof, value in table.items():
        assert t_quantile(0.975, dof) == pytest.approx(value, rel=1e-5)
    assert t_quantile(0.95, 5) == pytest.approx(2.01505, rel=1e-5)


def test_mean_interval_over_seeds() -> None:
    found = mean_ci([4.0, 5.0, 6.0])
    assert found.value == 5.0
    assert found.high == pytest.approx(5 + 4.30265 / math.sqrt(3), rel=1e-5)
    assert mean_ci([3.0]) == (3.0, None, None)
    with pytest.raises(InputError, match="no values"):
        mean_ci([])


def test_wilson_interval_by_hand_and_at_the_ends() -> None:
    found = attainment_ci(45, 50)
    assert (found.low, found.high) == pytest.approx((0.78640, 0.95652), abs=1e-4)
    assert attainment_ci(0, 20).low == 0.0 and 0.1 < (attainment_ci(0, 20).high or 0) < 0.2
    assert attainment_ci(20, 20).high == 1.0
    with pytest.raises(InputError, match="5 good out of 4"):
        attainment_ci(5, 4)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    draws = rng.normal(3.0, 2.0, size=(2000, 4))
    inside = [f.low <= 3.0 <= f.high for f in (mean_ci(row.tolist()) for row in draws)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
    counts = rng.binomial(80, 0.9, size=2000).tolist()
    inside = [f.low <= 0.9 <= f.high for f in (attainment_ci(k, 80) for k in counts)]
    assert 0.92 < np.mean(inside) < 0.98


def test_bootstrap_is_repeatable_and_close_to_the_t_interval() -> None:
    values = np.random.default_rng(1).normal(10, 3, size=200)
    found = bootstrap_ci(values, seed=7)
    assert found == bootstrap_ci(values, seed=7) and found != bootstrap_ci(values, seed=8)
    t = mean_ci(values.tolist())
    assert (found.low, found.high) == pytest.approx((t.low, t.high), abs=0.1)
    p99 = bootstrap_ci(values, lambda sample: float(np.quantile(sample, 0.99)))
    assert p99.low is not None and p99.low <= p99.value == np.quantile(values, 0.99)
    with pytest.raises(InputError, match="no NaN"):
        bootstrap_ci([1.0, math.nan])
    for confidence in (95, 0, 1):
        with pytest.raises(InputError, match=r"such as 0\.95"):
            bootstrap_ci(values, confidence=confidence)
