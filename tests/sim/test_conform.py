"""The conformance kit: right schedulers pass, and each planted mistake is caught under its rule.

Failure this exists for: a kit that passes everything, one that refuses a policy merely because it
is another one, and a finding that names the wrong rule and sends a learner the wrong way.
"""

from __future__ import annotations

import re
from collections import deque

import conform_mutants as mutants
import conform_mutants_kv as kv
import pytest
from conform_own import FromScratch

from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.plan import StepPlan
from minilab.core.scheduler import Scheduler
from minilab.facts.errors import InputError
from minilab.sim.conform import Report, conform
from minilab.sim.conform_memory import Memory, Work
from minilab.sim.conform_rules import CLAIMS, LIKELY, RULES
from minilab.sim.conform_run import run_world
from minilab.sim.conform_world import random_world, shrink, streams


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


def test_one_that_shares_nothing_with_ours_passes() -> None:
    """The kit asks for the interface alone; a pool of one's own need only count."""
    report = conform(FromScratch)
    assert report.passed, str(report)
    assert report.preemptions[0] == 0 and report.steps[0] >= report.steps[1]


def test_the_fast_scheduler_takes_the_oracles_steps() -> None:
    report = conform(Fast, worlds=60)
    assert report.steps[0] == report.steps[1] and report.preemptions[0] == report.preemptions[1]


MISTAKES = {
    mutants.ForgetsDecodes: ("budget", "decodes are not taken off"),
    mutants.OneSlotMore: ("slots", "still in their prompt"),
    kv.KeepsBlocks: ("returned", "release blocks before the table"),
    kv.LeaksOnAbort: ("returned", "at an abort"),
    mutants.ForgetsAborted: ("interface", "stay in"),
    mutants.SilentPreemption: ("plan", "into plan.preempted"),
    mutants.Resumes: ("causality", "computed again"),
    mutants.ForgetsOutput: ("tokens", ""),
    mutants.OneTokenLess: ("tokens", ""),
    mutants.FirstTokenTwice: ("tokens", "last chunk"),
    kv.TakesWithoutAsking: ("raises", "ask pool.available"),
    kv.LateBlock: ("blocks", "before the step"),
    kv.AcceptsAll: ("admission", "can never end"),
    kv.RefusesMore: ("admission", "prompt + output - 1"),
    mutants.NewestFirst: ("starvation", "needs a bound"),
    mutants.ShortestFirst: ("starvation", "needs a bound"),
    mutants.HalfLengthFirst: ("fcfs", "head of the queue"),
    kv.Unsalted: ("kv", "salt belongs into the hash"),
    kv.Parentless: ("kv", "what comes before"),
    kv.PublishesEarly: ("kv", "before its step was over"),
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
    report = conform(kv.Endless, seconds=0.3)
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
