"""Instance: one engine on a virtual clock, advanced a run of equal steps at a time.

A *run* is what the scheduler would plan again and again if nobody disturbed it. The instance asks
the cost model for its length, sleeps through it in one event, and is woken early (``cut``) when
something arrives that could change the plan. Time is in ticks (``facts.ticks``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any, Protocol

from minilab.core.plan import PLAIN, StepOutcome, StepPlan, StepResult
from minilab.core.request import RequestState


class RunCost(Protocol):
    """Charges time for a plan."""

    def run(self, plan: StepPlan) -> tuple[int, int, int]:
        """(ticks of the first step, ticks each further one adds, steps for which that holds)."""
        ...


class SchedulerLike(Protocol):
    """What an instance needs of a scheduler, ours or a learner's own.

    ``accepts_now``, ``repeats`` and ``steps`` above 1 only buy speed; True, 1 and 1 are always
    right.
    """

    def add(self, request: RequestState) -> bool: ...
    def schedule(self) -> StepPlan: ...
    def repeats(self, plan: StepPlan) -> int: ...
    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult: ...
    def abort(self, request: RequestState) -> None: ...
    @property
    def accepts_now(self) -> bool: ...
    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def pool(self) -> Any: ...


class Drafter(Protocol):
    """Reports what a step with drafts yields; makes every step a run of its own."""

    def execute(self, plan: StepPlan) -> StepOutcome: ...


Run = tuple[int, int, int, int, int, int, int]
"""A finished run: (start, first, slope, steps, batch, waiting, used blocks); step j lasts
``first + slope * j`` ticks, ``batch`` decodes got a token in each, ``waiting`` is the queue when it
began, and ``used blocks`` are those in use when it ended."""


def steps_begun(elapsed: int, first: int, slope: int, steps: int) -> int:
    """Steps of a run that have begun once ``elapsed`` ticks are over, at least 1.

    An event exactly at the end of a step finds that step done and the next one not begun.
    """
    if not slope:
        count = -(-elapsed // first)
    else:
        # Smallest n with n*first + slope*n*(n-1)/2 >= elapsed: the root, then exact fix-up.
        b = 2 * first - slope
        count = (isqrt(b * b + 8 * slope * elapsed) - b) // (2 * slope)
        while count * first + slope * (count * (count - 1) // 2) < elapsed:
            count += 1
    return min(max(count, 1), steps)


class Instance:
    """One scheduler, one cost model, and the run in progress.

    Attributes:
        until: tick at which the current run ends; -1 when idle.
        runs: finished runs, in order.
        stalled: decodes that got no token in the last run.
        pending: what to do when the step under way is over, before the next one is planned.
    """

    __slots__ = (
        "cost",
        "drafter",
        "first",
        "pending",
        "plan",
        "runs",
        "scheduler",
        "skip",
        "slope",
        "stalled",
        "start",
        "steps",
        "until",
    )

    def __init__(
        self,
        scheduler: SchedulerLike,
        cost: RunCost,
        *,
        skip: bool = True,
        drafter: Drafter | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.cost = cost
        self.skip = skip and drafter is None
        self.drafter = drafter
        self.until = -1
        self.start = self.first = self.slope = self.steps = 0
        self.plan = StepPlan()
        self.runs: list[Run] = []
        self.stalled: list[RequestState] = []
        self.pending: list[Callable[[], None]] = []

    def begin(self, now: int) -> StepPlan:
        """Plan and start a run. A false plan leaves the instance idle: nothing can be done."""
        scheduler = self.scheduler
        self.plan = plan = scheduler.schedule()
        if not plan.num_decodes and not plan.prefills:
            self.until = -1
            return plan
        first, slope, valid = self.cost.run(plan)
        self.start, self.first, self.slope = now, first, slope
        if plan.prefills or not self.skip:
            self.steps = 1
            self.until = now + first
        else:
            self.steps = steps = min(scheduler.repeats(plan), valid)
            self.until = now + steps * first + slope * (steps * (steps - 1) // 2)
        return plan

    def end_of(self, steps: int) -> int:
        """Tick at which the first ``steps`` steps of the current run are over."""
        return self.start + steps * self.first + self.slope * (steps * (steps - 1) // 2)

    def begun_at(self, now: int) -> int:
        """Decode steps of the current run that have begun at ``now``; 0 when there are none."""
        if self.until < 0 or not self.plan.num_decodes:
            return 0
        if self.steps == 1:
            return 1
        return steps_begun(now - self.start, self.first, self.slope, self.steps)

    def cut(self, now: int) -> bool:
        """End the current run with the step that is under way at ``now``; True if that is sooner.

        What arrives at ``now`` is then seen by the step after it.
        """
        if self.steps == 1:
            return False
        steps = steps_begun(now - self.start, self.first, self.slope, self.steps)
        if steps == self.steps:
            return False
        self.steps = steps
        self.until = self.end_of(steps)
        return True

    def complete(self) -> StepResult:
        """Commit the current run, which has ended."""
        plan = self.plan
        if self.drafter is None:
            outcome, batch = PLAIN, plan.num_decodes
        else:
            outcome = self.drafter.execute(plan)
            batch = plan.num_decodes - self._count_uneven(outcome)
        result = self.scheduler.update(plan, outcome, self.steps)
        self.until = -1
        self.runs.append(
            (
                self.start,
                self.first,
                self.slope,
                self.steps,
                batch,
                plan.num_waiting,
                result.used_blocks,
            )
        )
        return result

    def _count_uneven(self, outcome: StepOutcome) -> int:
        """Note who yields more than one token; returns how many yield none."""
        self.stalled = []
        for request_id, count in outcome.tokens.items():
            request = self.plan.decodes.get(request_id)
            if request is not None and count:
                request.zeros += count - 1
            elif request is not None:
                self.stalled.append(request)
        return len(self.stalled)
