"""RunLog: its rules, and the comparison on which the simulators' equality tests rest.

What these tests exist for: a broken log that passes as a good one (its metrics would be wrong, not
missing), and a comparison that overlooks a difference.
"""

from __future__ import annotations

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.runlog import KINDS, STAGES, TIMES, RunLog, blank_requests
from minilab.facts.ticks import TICKS_PER_SECOND


def table(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    values = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    return {name: values[:, i].copy() for i, name in enumerate(names)}


def changed(log: RunLog, name: str, row: int, value: object) -> RunLog:
    requests = {key: column.copy() for key, column in log.requests.items()}
    requests[name][row] = value
    return RunLog(requests, log.gaps, log.series, log.meta)


@pytest.mark.parametrize("gaps", ["lists", "runs", None])
def test_a_sound_log_passes(gaps: str | None, small_log) -> None:
    log = small_log(gaps)
    assert log.check() is log


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("first_token", 0, 0.05, r"request 3 \(row 0\): first_token 0.05 comes before arrival 0.1"),
        ("finish", 0, 0.9, r"row 0\): finish 0.9 comes before first_token 1.0"),
        ("scheduled", 1, 0.4, r"request 7 \(row 1\): scheduled 0.4 comes before arrival"),
        ("prompt_tokens", 2, -1, r"request 8 \(row 2\): prompt_tokens -1 is negative"),
        ("preemptions", 1, -2, r"preemptions -2 is negative"),
        ("instance", 1, -2, r"instance -2 is below -1"),
        ("status", 1, "done", r"row 1\): status 'done'; use one of finished, aborted"),
        ("tenant", 1, None, r"tenant None is not text"),
        ("id", 1, 3, r"row 1: id 3 after id 3; sort by id"),
        ("output_tokens", 0, 5, r"row 0\): 3 gaps for output_tokens 5; n tokens have n - 1 gaps"),
        ("output_tokens", 0, 3, r"row 0\): 3 gaps for output_tokens 3; n tokens have n - 1 gaps"),
        ("output_tokens", 1, 0, r"row 1\): first_token 1.5 with output_tokens 0"),
        ("first_token", 1, np.nan, r"row 1\): first_token nan though other requests have one"),
        ("finish", 0, np.nan, r"row 0\): finish nan though other requests have one"),
        ("arrival", 2, np.nan, r"row 2\): arrival nan though other requests have one"),
        ("finish", 0, np.inf, r"row 0\): finish inf is infinite"),
        ("prefill", 0, -0.5, r"row 0\): prefill -0.5 is negative"),
    ],
)
@pytest.mark.parametrize("gaps", ["lists", "runs"])
def test_each_broken_rule_names_row_and_field(gaps, name, row, value, message, small_log) -> None:
    with pytest.raises(InputError, match=message) as caught:
        changed(small_log(gaps), name, row, value).check()
    assert "\n" not in str(caught.value)


def test_a_time_nobody_recorded_is_allowed(small_log) -> None:
    log = small_log()
    for name in ("scheduled", "queued", "first_token", *STAGES):
        log.requests[name][:] = np.nan
    log.check()  # an imported file without these: unavailable, not wrong


def test_rounding_of_epoch_seconds_is_no_error(small_log) -> None:
    log = small_log(None)
    for name in TIMES:
        log.requests[name] += 1.7e9
    log.requests["first_token"][1] = np.nextafter(log.requests["scheduled"][1], 0)
    log.requests["finish"][1] += 1
    log.check()


def test_an_aborted_request_may_lack_gaps_but_not_have_too_many(small_log) -> None:
    log = changed(changed(small_log(), "status", 0, "aborted"), "output_tokens", 0, 5)
    log.check()
    with pytest.raises(InputError, match="3 gaps for output_tokens 2"):
        changed(log, "output_tokens", 0, 2).check()


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_a_gap_that_is_no_length_is_refused(value: float, small_log) -> None:
    log = small_log()
    gaps = GapLists.of([[1.0, 1.0, value], [], []])
    with pytest.raises(InputError, match=r"request 3 \(row 0\): gap 2 is"):
        RunLog(log.requests, gaps).check()


@pytest.mark.parametrize(
    ("part", "name", "row", "value", "message"),
    [
        ("runs", "n", 0, 0, "gaps.runs: row 0: n below 1"),
        ("runs", "first", 0, -1, "gaps.runs: row 0: a step of negative length"),
        ("runs", "slope", 0, -TICKS_PER_SECOND, "a step of negative length"),
        ("runs", "batch", 0, -1, "negative batch"),
        ("spans", "request", 0, 3, "gaps.spans: row 0: request is not a row"),
        ("spans", "request", 1, 0, "3 gaps|4 gaps|before the request's previous"),
        ("spans", "run_to", 0, 2, r"gaps.spans: row 0: run_from, run_to not in order within 0..1"),
        ("spans", "run_from", 1, 2, "gaps.spans: row 1: run_from"),
        ("spans", "zeros", 1, -1, "gaps.spans: row 1: negative zeros"),
        ("spans", "run_from", 1, 0, "gaps.runs: row 0: more spans than its batch"),
        ("spans", "token_time", 0, 3 * TICKS_PER_SECOND, "a token before the request's previous"),
    ],
)
def test_each_fault_of_runs_and_spans_is_found(part, name, row, value, message, small_log) -> None:
    log = small_log("runs")
    assert isinstance(log.gaps, GapRuns)
    getattr(log.gaps, part)[name][row] = value
    with pytest.raises(InputError, match=message):
        log.check()


def test_a_span_over_two_instances_is_refused_and_a_span_on_each_is_not(small_log) -> None:
    second = TICKS_PER_SECOND
    rows = [(second, second, 0, 1, 1, 0, 0, 0), (3 * second, second, 0, 1, 1, 1, 0, 0)]
    log = small_log()

    def check(*spans: tuple[int, ...]) -> None:
        gaps = GapRuns(table(RUN_COLUMNS, rows), table(SPAN_COLUMNS, list(spans)), 3)
        RunLog(log.requests, gaps).check()

    check((0, second, 0, 1, 0), (0, 3 * second, 1, 2, 0))
    with pytest.raises(InputError, match=r"gaps.spans: row 0: runs of two instances"):
        check((0, second, 0, 2, 0))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"duration": 0}, "duration 0; give seconds above 0"),
        ({"duration": float("nan")}, "duration nan"),
        ({"seed": {1, 2}}, "keep to what JSON can hold"),
        ({"rate": float("inf")}, "keep to what JSON can hold"),
    ],
)
def test_meta_that_no_file_could_hold_is_refused(meta, message, small_log) -> None:
    log = small_log()
    with pytest.raises(InputError, match=message):
        RunLog(log.requests, log.gaps, None, meta).check()


def test_missing_unknown_ragged_and_mistyped_columns(small_log) -> None:
    def broken(change) -> RunLog:
        log = small_log()
        change(log.requests)
        return log

    faults = {
        r"lacks \['finish'\]": lambda c: c.pop("finish"),
        r"has unknown \['finnish'\]": lambda c: c.update(finnish=c["finish"]),
        "different lengths": lambda c: c.update(finish=c["finish"][:2]),
        "prompt_tokens has dtype float64; needs int": lambda c: c.update(
            prompt_tokens=c["prompt_tokens"].astype(float)
        ),
    }
    for message, change in faults.items():
        with pytest.raises(InputError, match=message):
            broken(change).check()


def test_duration_is_metas_own_or_first_arrival_to_last_finish(small_log) -> None:
    log = small_log()
    assert log.duration == pytest.approx(3.9)
    assert RunLog(log.requests, meta={"duration": 10}).duration == 10
    assert np.isnan(RunLog(blank_requests(2)).duration)
    late = changed(log, "finish", 2, 9.1)  # a failure at the end does not shorten the run
    assert late.duration == pytest.approx(9.0)


@pytest.mark.parametrize("gaps", ["lists", "runs", None])
def test_select_keeps_rows_and_their_gaps(gaps: str | None, small_log) -> None:
    part = small_log(gaps).select(np.array([False, True, True])).check()
    assert part.requests["id"].tolist() == [7, 8]
    assert part.gaps is None or part.gaps.counts().tolist() == [0, 0]
    with pytest.raises(InputError, match="mask of shape"):
        part.select(np.array([True]))


def test_runs_equal_the_same_gaps_in_lists(small_log) -> None:
    assert small_log("runs").equal(small_log("lists"))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_difference_in_any_column_is_found(name: str, small_log) -> None:
    log = small_log()
    values = {int: 99, float: 5.5, str: "other"}
    other = changed(log, name, 1, values[KINDS[name]])
    assert not log.equal(other) and not other.equal(log)
    assert f"(row 1): {name} " in (log.difference(other) or "")


def test_differences_read_as_a_sentence(small_log) -> None:
    log = small_log()
    late = changed(changed(log, "finish", 0, 4.25), "finish", 1, 2.0)
    assert log.difference(late, tol=1e-9) == (
        "request 3 (row 0): finish 4.0 here, 4.25 there, tolerance 1e-09 s (2 requests differ)"
    )
    assert log.equal(late, tol=0.5)
    gaps = GapLists.of([[1.0, 1.5, 1.0], [], []])
    other = RunLog(log.requests, gaps)
    assert log.difference(other, 0.1) == (
        "request 3 (row 0): gap 1 of 3 1.0 here, 1.5 there, tolerance 0.1 s"
    )
    fewer = RunLog(log.requests, GapLists.of([[1.0], [], []]))
    assert log.difference(fewer) == "request 3 (row 0): 3 gaps here, 1 there"
    assert log.difference(small_log(None)) == "gaps given here, not so there"
    assert log.difference(log.select(np.array([True, True, False]))) == "3 requests here, 2 there"
