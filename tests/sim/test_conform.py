"""The conformance kit: right schedulers pass, and each planted mistake is caught under its rule.

Failure this exists for: a kit that passes everything, one that refuses a policy merely because it
is another one, and a finding that names the wrong rule and sends a learner the wrong way.
"""

from __future__ import annotations

import re
from collections import deque

import conform_mutants as mutants
import numpy as np
import pytest

from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.plan import StepPlan
from minilab.core.scheduler import Scheduler
from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests
from minilab.sim.conform import Report, conform
from minilab.sim.conform_log import judge_log
from minilab.sim.conform_memory import Memory, Work
from minilab.sim.conform_rules import CLAIMS, LIKELY, RULES
from minilab.sim.conform_run import run_world
from minilab.sim.conform_world import random_world, shrink, streams
from minilab.sim.experiment import Experiment


class Plain(PlainScheduler):
    claims = ("fcfs", "plain")


class Fast(Scheduler):
    claims = ("fcfs", "plain")


class Patient(PlainScheduler):
    """Shortest prompt first, but nobody is passed over more than 20 times."""

    def __init__(self, config: object) -> None:
        super().__init__(config)  # type: ignore[arg-type]
        self.passed: dict[int, int] = {}

    def schedule(self) -> StepPlan:
        self.waiting = deque(sorted(self.waiting, key=self.rank))
        plan = super().schedule()
        for admitted in plan.admitted:
            for other in self.waiting:
                if other.id < admitted.id:
                    self.passed[other.id] = self.passed.get(other.id, 0) + 1
        return plan

    def rank(self, request: object) -> tuple[bool, bool, int]:
        late = self.passed.get(request.id, 0) < 20  # type: ignore[attr-defined]
        return not request.num_preemptions, late, request.num_prompt_tokens  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheduler", [Plain, Fast, Patient], ids=lambda c: c.__name__)
def test_what_is_right_passes(scheduler: type) -> None:
    report = conform(scheduler)
    assert report.passed, str(report)
    assert report.worlds == 203 and report.failing == 0
    assert report.steps[1] > 5000 and report.preemptions[1] > 100, "the worlds press on nothing"


def test_the_fast_scheduler_takes_the_oracles_steps() -> None:
    report = conform(Fast, worlds=60)
    assert report.steps[0] == report.steps[1] and report.preemptions[0] == report.preemptions[1]


MISTAKES = {
    mutants.ForgetsDecodes: ("budget", "decodes are not taken off"),
    mutants.OneSlotMore: ("slots", "still in their prompt"),
    mutants.KeepsBlocks: ("returned", "release blocks before the table"),
    mutants.LeaksOnAbort: ("returned", "at an abort"),
    mutants.ForgetsAborted: ("interface", "stay in"),
    mutants.SilentPreemption: ("plan", "into plan.preempted"),
    mutants.Resumes: ("causality", "computed again"),
    mutants.ForgetsOutput: ("tokens", ""),
    mutants.OneTokenLess: ("tokens", ""),
    mutants.FirstTokenTwice: ("tokens", "last chunk"),
    mutants.TakesWithoutAsking: ("raises", "ask pool.available"),
    mutants.LateBlock: ("blocks", "before the step"),
    mutants.AcceptsAll: ("admission", "can never end"),
    mutants.RefusesMore: ("admission", "prompt + output - 1"),
    mutants.NewestFirst: ("starvation", "needs a bound"),
    mutants.ShortestFirst: ("starvation", "needs a bound"),
    mutants.HalfLengthFirst: ("fcfs", "head of the queue"),
    mutants.Unsalted: ("kv", "salt belongs into the hash"),
    mutants.Parentless: ("kv", "what comes before"),
    mutants.PublishesEarly: ("kv", "before its step was over"),
    mutants.WrongContext: ("plan", "time is charged"),
    mutants.RepeatsTooOften: ("repeats", "1 is always right"),
    mutants.Idles: ("progress", "head of the queue fits"),
    mutants.ForgetsToReturn: ("interface", "return True"),
    mutants.LosesCount: ("interface", "count your lists"),
    mutants.NoStatus: ("interface", "request.status"),
    mutants.Twice: ("plan", "leaves one list"),
    mutants.DecodesEarly: ("causality", "all but its newest"),
    mutants.Breaks: ("raises", ""),
}


@pytest.mark.parametrize("mutant", MISTAKES, ids=lambda c: c.__name__)
def test_a_mistake_is_caught_under_its_rule_on_a_small_world(mutant: type) -> None:
    rule, likely = MISTAKES[mutant]
    report = conform(mutant, worlds=100)
    finding = report.findings[0]
    assert finding.rule == rule and likely in finding.likely, str(report)
    assert len(finding.world.requests) <= (60 if rule == "starvation" else 4), "not shrunk"
    again = run_world(mutant, finding.world).finding
    assert again is not None and again.rule == rule, "the world shown does not show it"
    text = str(report)
    assert rule in text and len(text.splitlines()) < 40
    assert " ".join(finding.what.split()) in " ".join(text.split())


def test_an_endless_loop_is_stopped_and_its_line_told() -> None:
    report = conform(mutants.Endless, seconds=0.3)
    finding = report.findings[0]
    assert finding.rule == "progress" and "did not return" in finding.what
    assert "while len(opening) > self.pool.available" in finding.where


def test_an_exception_is_told_with_the_learners_own_line() -> None:
    (finding,) = conform(mutants.Breaks, worlds=40).findings
    assert re.search(r"conform_mutants\.py:\d+: `self\.victim = ", finding.where)
    assert "AttributeError" in finding.what


class Lacking:
    def __init__(self, config: object) -> None: ...


class Broken(PlainScheduler):
    def __init__(self, config: object) -> None:
        raise OSError("no GPU here")


class NoPlan(PlainScheduler):
    def schedule(self) -> StepPlan:
        super().schedule()
        return None  # type: ignore[return-value]


class OddPlan(PlainScheduler):
    def schedule(self) -> StepPlan:
        plan = super().schedule()
        plan.prefills = [(chunk.request, chunk.num_tokens) for chunk in plan.prefills]  # type: ignore[misc]
        return plan


class OddResult(PlainScheduler):
    def update(self, plan: object, outcome: object, steps: int) -> object:  # type: ignore[override]
        super().update(plan, outcome, steps)  # type: ignore[arg-type]
        return (1, 2, 3)


@pytest.mark.parametrize(
    ("scheduler", "rule"),
    [
        (Lacking, "interface"),
        (Broken, "raises"),
        (NoPlan, "interface"),
        (OddPlan, "interface"),
        (OddResult, "interface"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_no_scheduler_is_told_not_raised(scheduler: type, rule: str) -> None:
    report = conform(scheduler, worlds=5)
    assert [finding.rule for finding in report.findings] == [rule], str(report)


def test_an_unknown_claim_is_refused() -> None:
    class Boasts(PlainScheduler):
        claims = ("fastest",)

    with pytest.raises(InputError, match="known are fcfs, plain"):
        conform(Boasts)


def test_a_report_is_the_same_each_time_and_json_can_hold_it() -> None:
    one, two = (conform(mutants.ForgetsDecodes, worlds=60) for _ in range(2))
    assert one.to_dict() == two.to_dict() and isinstance(one, Report)
    assert one.to_dict()["findings"][0]["world"] == one.findings[0].world.lines()


def test_every_case_has_a_rule_and_every_rule_a_case() -> None:
    assert {case.split(".")[0] for case in LIKELY} == set(RULES)
    assert set(CLAIMS) <= set(RULES)


# -- the memory of names --------------------------------------------------------------------------


def test_a_slot_read_before_it_is_written_is_nothing() -> None:
    world = random_world(0)
    cluster = world.cluster(PlainScheduler)
    cluster.run(world.requests)
    state = next(s for s in cluster.states.values() if s.num_prompt_tokens >= 2)
    size, memory = world.config.block_size, Memory(world.config.num_blocks, world.config.block_size)
    state.block_table = list(range(-(-state.num_prompt_tokens // size)))
    wrong = memory.run([Work(state, 1, 2)], [state.block_table])
    assert wrong is not None and (wrong.position, wrong.found) == (0, "nothing")
    assert memory.run([Work(state, 0, 1)], [state.block_table]) is None
    assert memory.run([Work(state, 1, 2)], [state.block_table]) is None


# -- worlds ---------------------------------------------------------------------------------------


def test_worlds_of_a_seed_are_the_same_and_press_on_limits() -> None:
    worlds = [random_world(seed) for seed in range(200)]
    assert worlds == [random_world(seed) for seed in range(200)]
    assert any(world.aborts for world in worlds)
    assert any(r.cache_salt == "a" for world in worlds for r in world.requests)
    for world in [*worlds, *streams()]:
        assert [r.id for r in world.requests] == list(range(len(world.requests)))
        assert list(world.requests) == sorted(world.requests, key=lambda r: r.arrival)


def test_shrinking_keeps_what_fails_and_drops_the_rest() -> None:
    world = next(w for w in map(random_world, range(50)) if len(w.requests) >= 8)
    wanted = {world.requests[2].arrival, world.requests[6].arrival}
    small = shrink(world, lambda w: wanted <= {r.arrival for r in w.requests})
    assert len(small.requests) == len(wanted)
    assert [r.id for r in small.requests] == list(range(len(small.requests)))


# -- run logs -------------------------------------------------------------------------------------


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
    assert judge_log(Experiment().with_(trace="synthetic", limit=80).run()).passed


def test_what_cannot_have_happened_is_named() -> None:
    assert broken_rules(log_of(arrival=[0.1, 1.2], first_token=[0.2, 1.2], scheduled=[0.2, 1.2],
                               queue=[0.1, 0.0], prefill=[0.0, 0.0])) == ["causality"]  # fmt: skip
    assert broken_rules(log_of(cached_tokens=[8, 0])) == ["tokens"]
    assert broken_rules(log_of(decode=[0.2, 2.0])) == ["stages"]
    assert broken_rules(log_of(queued=[0.05, 0.5])) == ["well-formed"]
    late = log_of()
    assert broken_rules(RunLog(late.requests, GapLists.of([[0.1, 0.1], [1.0, 0.1]]))) == ["gaps"]
    assert broken_rules(RunLog(late.requests, late.gaps, None, {"duration": 0.5})) == ["duration"]
    together = log_of(arrival=[0.0, 0.0], scheduled=[0.1, 0.1], queue=[0.1, 0.1],
                      prefill=[0.1, 1.1])  # fmt: skip
    config = {"config": {"max_num_seqs": 1}}
    assert broken_rules(RunLog(together.requests, together.gaps, None, config)) == ["slots"]
    silent = log_of(output_tokens=[3, 0], first_token=[0.2, np.nan], prefill=[0.1, np.nan],
                    decode=[0.2, np.nan])  # fmt: skip
    assert broken_rules(RunLog(silent.requests, GapLists.of([[0.1, 0.1], []]))) == ["tokens"]


def test_what_limits_a_log_is_noted() -> None:
    log = log_of(scheduled=[np.nan] * 2, queue=[np.nan] * 2, prefill=[np.nan] * 2)
    notes = judge_log(RunLog(log.requests, None)).notes
    assert any("itl and stall are unavailable" in note for note in notes)
    assert any("queue is unavailable" in note for note in notes)


def test_more_blocks_than_the_pool_has_are_refused() -> None:
    log = Experiment(kv_blocks=2000).with_(trace="synthetic", limit=40).run()
    assert judge_log(log).passed
    log.meta["num_blocks"] = 3
    assert broken_rules(log) == ["blocks"]
