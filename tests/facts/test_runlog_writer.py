"""RunLogWriter: events in, a checked log out; what cannot be true is refused where it is reported.

Failure this exists for: a learner's engine that reports one event twice or by two clocks, and a log
that is judged although the engine broke down half way.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts import runlog_io, slo
from minilab.facts.errors import InputError
from minilab.facts.runlog_writer import RunLogWriter


def served() -> RunLogWriter:
    """Request 7: two tokens, a preemption, three at once. Request 2: one token. Not in order."""
    log = RunLogWriter()
    log.add(7, 1.0, 300, tenant="a", slo_class="chat", instance=1)
    log.add(2, 1.5, 10)
    log.scheduled(7, 1.25, cached_tokens=16)
    log.scheduled(2, 1.75)
    log.token(7, 2.0)
    log.token(7, 2.5)
    log.preempted(7, 2.5)
    log.token(2, 2.0)  # another request's earlier time: each has an order of its own
    log.scheduled(7, 3.0, cached_tokens=300)
    log.token(7, 4.0, count=3)
    log.finish(7)
    log.finish(2, t=2.25)
    return log


def test_what_was_reported_is_in_the_log() -> None:
    log = served().to_runlog()
    rows = {name: column.tolist() for name, column in log.requests.items()}
    assert (
        rows["id"] == [2, 7] and rows["tenant"] == ["", "a"] and rows["slo_class"] == ["", "chat"]
    )
    assert rows["arrival"] == [1.5, 1.0] and rows["scheduled"] == [1.75, 1.25]
    assert rows["first_token"] == [2.0, 2.0] and rows["finish"] == [2.25, 4.0]
    assert rows["output_tokens"] == [1, 5] and rows["preemptions"] == [0, 1]
    assert rows["cached_tokens"] == [0, 16], "the first admission's, not the resumption's"
    assert rows["status"] == ["finished"] * 2 and rows["instance"] == [-1, 1]
    assert rows["queue"] == [0.25, 0.25] and rows["prefill"] == [0.25, 0.75]
    assert log.gaps is not None
    assert log.gaps.to_lists().row(1).tolist() == [0.5, 1.5, 0.0, 0.0]
    assert log.gaps.counts().tolist() == [0, 4]
    assert slo.goodput(log, "ttft=0.75,stall=1").good == 1


def test_who_is_not_finished_counts_as_failed_and_keeps_its_tokens() -> None:
    log = RunLogWriter()
    log.add(0, 0.0, 5)
    log.add(1, 0.0, 5)
    log.token(1, 1.0)
    requests = log.to_runlog().requests
    assert requests["status"].tolist() == ["failed", "failed"]
    assert requests["output_tokens"].tolist() == [0, 1]
    assert np.isnan(requests["finish"]).all()


def test_the_file_is_the_log(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    with RunLogWriter(path, {"engine": "mine"}) as log:
        log.add(0, 0.0, 5)
        log.token(0, 0.5)
        log.finish(0)
        assert not path.exists(), "a name that appears early is read early"
    back = runlog_io.read(path)
    assert back.equal(log.to_runlog()) and back.meta == {"engine": "mine"}
    assert [p.name for p in tmp_path.iterdir()] == ["mine.jsonl"]


def test_an_engine_that_breaks_down_leaves_no_file_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("what was there")
    with pytest.raises(ZeroDivisionError), RunLogWriter(path) as log:
        log.add(0, 0.0, 5)
        log.token(0, 1 / 0)
    assert path.read_text() == "what was there"
    assert [p.name for p in tmp_path.iterdir()] == ["mine.jsonl"]


def test_a_log_that_breaks_a_rule_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    with pytest.raises(InputError, match="scheduled nan though other"), RunLogWriter(path) as log:
        for number in (0, 1):
            log.add(number, 0.0, 5)
            if number:
                log.scheduled(number, 0.1)
            log.token(number, 1.0)
            log.finish(number)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot end in '.csv'; name it .jsonl"):
        RunLogWriter(tmp_path / "mine.csv")
    with pytest.raises(InputError, match="is no folder; make it"):
        RunLogWriter(tmp_path / "nowhere" / "mine.jsonl")


REFUSED = {
    "twice added": (lambda log: log.add(0, 1.0, 5), "request 0: is added twice"),
    "unknown id": (lambda log: log.token(9, 1.0), "request 9: token of an unknown id; 1 are known"),
    "unknown finish": (lambda log: log.finish(9), "request 9: finish of an unknown id"),
    "back in time": (
        lambda log: (log.token(0, 3.0), log.token(0, 2.5)),
        "request 0: token at 2.5 s after token at 3 s; time does not go back",
    ),
    "before arrival": (lambda log: log.scheduled(0, 0.5), "scheduled at 0.5 s after arrival at 1"),
    "finish back": (lambda log: (log.token(0, 3.0), log.finish(0, t=2.0)), "finish at 2 s after"),
    "finished twice": (
        lambda log: (log.token(0, 3.0), log.finish(0), log.finish(0, "failed")),
        r"request 0: is finished twice \(finished at 3 s\)",
    ),
    "token after end": (
        lambda log: (log.token(0, 3.0), log.finish(0, "aborted"), log.token(0, 4.0)),
        r"request 0: token after its end \(aborted at 3 s\)",
    ),
    "no token": (lambda log: log.finish(0), "finished without a token"),
    "status": (lambda log: log.finish(0, "done"), "status 'done'; use one of finished, aborted"),
    "nan": (lambda log: log.token(0, math.nan), "token nan is no time"),
    "text time": (lambda log: log.token(0, "2"), "token '2' is no time"),
    "true": (lambda log: log.token(0, True), "token True is no time"),
    "id": (lambda log: log.add("a", 1.0, 5), "request 'a': id 'a'; give a whole number"),
    "count": (lambda log: log.token(0, 2.0, 0), "count 0; give a whole number of at least 1"),
    "prompt": (lambda log: log.add(1, 1.0, 5.5), "prompt_tokens 5.5; give a whole number"),
    "tenant": (lambda log: log.add(1, 1.0, 5, tenant=3), "tenant 3 is not text"),
    "too large": (lambda log: log.add(1 << 63, 1.0, 5), "give a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_true_is_refused_in_one_line(case: str) -> None:
    report, message = REFUSED[case]
    log = RunLogWriter()
    log.add(0, 1.0, 5)
    with pytest.raises(InputError, match=message) as caught:
        report(log)
    assert "\n" not in str(caught.value)


def test_a_refused_event_leaves_the_log_as_it_was() -> None:
    log = served()
    log.add(9, 5.0, 1)
    before = log.to_runlog()
    for wrong in (lambda: log.token(9, 4.0), lambda: log.token(9, 6.0, 0), lambda: log.finish(9)):
        with pytest.raises(InputError):
            wrong()
    assert log.to_runlog().equal(before)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0.001, 5.0), max_size=6), min_size=1, max_size=5))
def test_any_engine_gives_a_log_with_n_minus_1_gaps(steps: list[list[float]]) -> None:
    log = RunLogWriter()
    for number, waits in enumerate(steps):
        log.add(number, 0.0, 3)
        now = 0.0
        for wait in waits:
            now += wait
            log.token(number, now)
        if waits:
            log.finish(number)
    made = log.to_runlog()
    assert made.gaps is not None
    assert made.gaps.counts().tolist() == [max(0, len(waits) - 1) for waits in steps]
    assert made.finished.tolist() == [bool(waits) for waits in steps]
