"""Who met the SLO, and goodput.

What these tests exist for: a metric that is missing and counts as met; a failure that leaves the
denominator; a limit missed by rounding alone; a class judged by no SLO.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.slo import (
    METRICS,
    SLO,
    attainment,
    by_prompt_length,
    cost_per_good_request,
    good,
    goodput,
    metric,
    summary,
    unavailable,
)


def fail(log: RunLog, row: int, status: str = "failed") -> RunLog:
    requests = {name: column.copy() for name, column in log.requests.items()}
    requests["status"][row] = status
    return RunLog(requests, log.gaps, log.series, log.meta)


def without(log: RunLog, *dropped: str) -> RunLog:
    """As from a tool that did not record these columns, or the "gaps"."""
    requests = {name: column.copy() for name, column in log.requests.items()}
    for name in set(dropped) - {"gaps"}:
        requests[name][:] = np.nan
    return RunLog(requests, None if "gaps" in dropped else log.gaps)


def test_good_needs_every_limit_and_a_finish(three) -> None:
    log = three()
    assert good(log, "ttft=0.5,stall=0.1").tolist() == [True, False, False]
    assert good(log, "ttft=0.5").tolist() == [True, True, False]
    assert good(fail(log, 0), "ttft=0.5").tolist() == [False, True, False]


def test_one_token_outputs_pass_every_limit_between_tokens(served) -> None:
    log = served([(0.0, 0.1, []), (0.0, 0.1, [0.3])])
    for slo in ("itl=0.01", "tpot=0.01", "stall=0.01"):
        assert good(log, slo).tolist() == [True, False]
    assert good(log, "ttft=0.05").tolist() == [False, False]


def test_a_limit_equal_to_the_value_is_met_whatever_was_rounded(served) -> None:
    # 0.05 s on the tick grid is a little above or below 0.05
    log = served([(0.1, 0.5, [0.05 + 3e-14] * 5)])
    assert log.requests["first_token"][0] - log.requests["arrival"][0] != 0.05
    assert attainment(log, "ttft=0.5,itl=0.05,stall=0.05,tpot=0.05") == 1.0
    assert attainment(log, "itl=0.049999") == 0.0


def test_each_class_is_judged_by_its_own_slo(served) -> None:
    rows = [(0.0, 0.4, [0.01]), (0.0, 2.0, [0.5]), (0.0, 2.0, [0.5])]
    log = served(rows, slo_class=["chat", "batch", "chat"], tenant=["a", "a", "b"])
    result = goodput(log, "chat:ttft=0.5;batch:e2e=30;vip:ttft=0.1")
    assert good(log, "chat:ttft=0.5;batch:e2e=30").tolist() == [True, True, False]
    shares = {name: (s.good, s.total) for name, s in result.by_class.items()}
    assert shares == {"batch": (1, 1), "chat": (1, 2)}
    assert {n: s.attainment for n, s in result.by_tenant.items()} == {"a": 1.0, "b": 0.0}
    assert sum(s.goodput or 0 for s in result.by_tenant.values()) == pytest.approx(result.goodput)
    assert result.unused_classes == ("vip",)


def test_a_class_without_an_slo_is_refused_not_passed(served) -> None:
    log = served([(0.0, 0.1, [])], slo_class=["chta"])
    for judge in (good, attainment, goodput, unavailable):
        with pytest.raises(
            InputError, match=r"class 'chta' have none \(classes with one: 'chat'\)"
        ):
            judge(log, "chat:ttft=0.5")
    assert attainment(log, "chat:ttft=0.01;ttft=1") == 1.0


@pytest.mark.parametrize(
    ("dropped", "slo", "missing"),
    [
        ({"gaps"}, "ttft=9,itl=4", ("itl",)),
        ({"gaps"}, "stall=9", ("stall",)),
        ({"first_token"}, "ttft=9,tpot=4", ("ttft", "tpot")),
        ({"scheduled"}, "queue=9", ("queue",)),
        ({"arrival", "finish"}, "ttft=9,e2e=9", ("ttft", "e2e")),
    ],
)
def test_a_metric_the_log_cannot_tell_is_never_passed(dropped, slo, missing, three) -> None:
    log = without(three(), *dropped)
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


def test_goodput_by_hand(three) -> None:
    log = three()  # first arrival 0, last finish 2.6
    result = goodput(log, "ttft=0.5,stall=0.1", gpus=2)
    assert (result.good, result.total, result.completed) == (1, 3, 3)
    assert result.goodput == pytest.approx(1 / 2.6)
    assert result.goodput_per_gpu == pytest.approx(1 / 5.2)
    assert result.throughput == pytest.approx(3 / 2.6)
    longer = RunLog(log.requests, log.gaps, meta={"duration": 10.0})
    assert goodput(longer, "ttft=0.5").goodput == pytest.approx(0.2)
    json.dumps(result.as_dict(), allow_nan=False)


def test_no_requests_and_no_time_are_none_with_a_reason(served, three) -> None:
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
def test_looser_and_fewer_limits_never_lose_a_good_request(
    served, rows, limits, factor, data
) -> None:
    log = served(rows)
    now = good(log, SLO.of(limits))
    looser = good(log, SLO.of({name: seconds * factor for name, seconds in limits.items()}))
    fewer = data.draw(st.sets(st.sampled_from(sorted(limits)), min_size=1))
    assert (looser | ~now).all()
    assert (good(log, SLO.of({name: limits[name] for name in fewer})) | ~now).all()


@settings(max_examples=150, deadline=None)
@given(ROWS, LIMITS, st.data())
def test_a_failure_of_a_good_request_lowers_attainment(served, rows, limits, data) -> None:
    log, slo = served(rows), SLO.of(limits)
    row = data.draw(st.integers(0, len(rows) - 1))
    before, after = good(log, slo), attainment(fail(log, row), slo)
    assert after == pytest.approx((before.sum() - before[row]) / len(rows))
    result = goodput(fail(log, row), slo)
    assert (result.attainment, result.total) == (after, len(rows))


@settings(max_examples=150, deadline=None)
@given(ROWS, LIMITS, st.floats(0.5, 16))
def test_goodput_is_at_most_throughput_and_buckets_add_up(served, rows, limits, gpus) -> None:
    log, slo = served(rows), SLO.of(limits)
    result = goodput(log, slo, gpus)
    if result.goodput is not None and result.throughput is not None:
        assert 0 <= result.goodput <= result.throughput
        assert result.goodput_per_gpu == pytest.approx(result.goodput / gpus)
    buckets = by_prompt_length(log, [150, 450], slo)
    assert sum(row["n"] for row in buckets) == len(log)
    hits = sum(row["n"] * row["attainment"] for row in buckets if row["n"])
    assert hits == pytest.approx(result.good)


def test_cost_per_good_request(three) -> None:
    result = goodput(RunLog(three().requests, meta={"duration": 3600.0}), "ttft=0.5", gpus=4)
    assert cost_per_good_request(result, 2.0) == pytest.approx(4 * 2.0 / 2)  # 2 good in an hour
    assert cost_per_good_request(result, 2.0, gpus=1) == pytest.approx(1.0)
    assert cost_per_good_request(goodput(three(), "ttft=0.001"), 2.0) is None
    assert cost_per_good_request(goodput(without(three(), "gaps"), "itl=1"), 2.0) is None
    with pytest.raises(InputError, match="price -1"):
        cost_per_good_request(result, -1)
