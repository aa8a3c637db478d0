"""Conformance of run logs: what could be true passes, what cannot have happened is named.

Failure this exists for: an engine's own log with a gap too many or a duration too short, which
would be judged without a word, and a rule that refuses what the simulator itself writes.
"""

from __future__ import annotations

import numpy as np

from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests
from minilab.sim.conform_log import judge_log
from minilab.sim.experiment import Experiment


def log_of(**columns: list[float]) -> RunLog:
    """Two requests, three tokens each, in order; the columns given replace what is right."""
    requests = blank_requests(2)
    right = {
        "arrival": [0.0, 1.0],
        "scheduled": [0.1, 1.1],
        "first_token": [0.2, 1.2],
        "finish": [0.4, 1.4],
        "prompt_tokens": [8, 8],
        "output_tokens": [3, 3],
        "queue": [0.1, 0.1],
        "prefill": [0.1, 0.1],
        "decode": [0.2, 0.2],
    }
    for name, values in {**right, **columns}.items():
        requests[name][:] = values
    requests["status"][:] = "finished"
    return RunLog(requests, GapLists.of([[0.1, 0.1], [0.1, 0.1]]))


def broken_rules(log: RunLog) -> list[str]:
    return [finding.rule.split(":")[0] for finding in judge_log(log).findings]


def test_a_log_that_could_be_true_conforms() -> None:
    report = judge_log(log_of())
    assert report.passed and not report.notes, str(report)
    for more in ({}, {"num_speculative_tokens": 3}, {"kv_blocks": 300}, {"instances": 2}):
        log = Experiment(**more).with_(trace="synthetic", limit=80, rate=9.0).run()
        assert judge_log(log).passed, str(judge_log(log))


def test_a_first_token_takes_time() -> None:
    late = [1.2, 1.2]
    log = log_of(arrival=[0.1, 1.2], scheduled=[0.1, 1.2], queue=[0.0, 0.0], prefill=[0.1, 0.0])
    assert log.requests["first_token"][1] == late[1]
    assert broken_rules(log) == ["causality"]


def test_tokens_that_cannot_be() -> None:
    assert broken_rules(log_of(cached_tokens=[8, 0])) == ["tokens"]
    nan = [0.1, np.nan]
    silent = log_of(output_tokens=[3, 0], first_token=[0.2, np.nan], prefill=nan, decode=nan)
    assert broken_rules(RunLog(silent.requests, GapLists.of([[0.1, 0.1], []]))) == ["tokens"]


def test_times_that_cannot_be() -> None:
    assert broken_rules(log_of(decode=[0.2, 2.0])) == ["stages"]
    assert broken_rules(log_of(queued=[0.05, 0.5])) == ["well-formed"]
    log = log_of()
    assert broken_rules(RunLog(log.requests, GapLists.of([[0.1, 0.1], [1.0, 0.1]]))) == ["gaps"]
    assert broken_rules(RunLog(log.requests, log.gaps, None, {"duration": 0.5})) == ["duration"]
    assert not broken_rules(RunLog(log.requests, log.gaps, None, {"duration": 1.4}))


def test_more_at_once_than_there_are_slots_or_blocks() -> None:
    both = log_of(arrival=[0.0, 0.0], scheduled=[0.1, 0.1], queue=[0.1, 0.1], prefill=[0.1, 1.1])
    one, two = ({"config": {"max_num_seqs": n}} for n in (1, 2))
    assert broken_rules(RunLog(both.requests, both.gaps, None, one)) == ["slots"]
    assert not broken_rules(RunLog(both.requests, both.gaps, None, two))
    log = Experiment(kv_blocks=2000).with_(trace="synthetic", limit=40).run()
    log.meta["num_blocks"] = 3
    assert broken_rules(log) == ["blocks"]


def test_what_limits_a_log_is_noted() -> None:
    log = log_of(scheduled=[np.nan] * 2, queue=[np.nan] * 2, prefill=[np.nan] * 2)
    notes = judge_log(RunLog(log.requests, None)).notes
    assert any("itl and stall are unavailable" in note for note in notes)
    assert any("queue is unavailable" in note for note in notes)
    together = log_of(arrival=[0.0, 0.0])
    assert any("at one moment" in note for note in judge_log(together).notes)
    together.requests["status"][1] = "failed"
    assert any("1 requests did not finish" in note for note in judge_log(together).notes)
    none = RunLog({name: column[:0] for name, column in log.requests.items()}, GapLists.of([]))
    assert judge_log(none).notes == ("the log has no requests",) and judge_log(none).passed
