"""Schedulers with one mistake each in plans, tokens or order; see test_conform.py."""

from __future__ import annotations

from collections import deque

from minilab.core.config import SchedulerConfig
from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.plan import Prefill, StepOutcome, StepPlan, StepResult
from minilab.core.request import RUNNING, RequestState


class ForgetsDecodes(PlainScheduler):
    """Prompts get the whole budget, whatever the decodes take."""

    def plan_prompts(self, plan: StepPlan, budget: int) -> None:
        super().plan_prompts(plan, self.config.max_num_batched_tokens)


class OneSlotMore(PlainScheduler):
    @property
    def num_running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    def plan_prompts(self, plan: StepPlan, budget: int) -> None:
        slots = self.config
        self.config = SchedulerConfig(
            slots.num_blocks,
            slots.block_size,
            slots.max_num_batched_tokens + 1,
            slots.max_num_seqs + 1,
            slots.policy,
            slots.enable_prefix_caching,
        )
        super().plan_prompts(plan, budget)
        self.config = slots


class ForgetsAborted(PlainScheduler):
    """An aborted request stays in the queue."""

    def abort(self, request: RequestState) -> None:
        queue = deque(self.waiting)
        super().abort(request)
        self.waiting = queue


class SilentPreemption(PlainScheduler):
    """plan.preempted stays empty."""

    def preempt_newest(self, plan: StepPlan) -> None:
        before = plan.preempted
        super().preempt_newest(plan)
        plan.preempted = before


class Resumes(PlainScheduler):
    """A preempted request goes on where it was, without the KV it lost."""

    def preempt_newest(self, plan: StepPlan) -> None:
        request = (self.prefilling or self.decoding)[-1]
        computed = request.num_computed_tokens
        super().preempt_newest(plan)
        self.lost = {**getattr(self, "lost", {}), request.id: computed}

    def add_chunk(self, plan: StepPlan, request: RequestState, chunk: int) -> int:
        done = getattr(self, "lost", {}).pop(request.id, 0)
        if done and done < request.num_tokens:
            request.num_computed_tokens = done
            chunk = min(chunk, request.num_tokens - done)
        return super().add_chunk(plan, request, chunk)


class ForgetsOutput(PlainScheduler):
    """Counts the tokens that came out before a preemption as if they had to come again."""

    def preempt_newest(self, plan: StepPlan) -> None:
        request = (self.prefilling or self.decoding)[-1]
        super().preempt_newest(plan)
        request.num_output_tokens = 0


class OneTokenLess(PlainScheduler):
    def add(self, request: RequestState) -> bool:
        kept = super().add(request)
        request.max_tokens = max(1, request.max_tokens - 1)
        return kept


class FirstTokenTwice(PlainScheduler):
    """A chunk in the middle of a prompt counts as its end."""

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        result = super().update(plan, outcome, steps)
        middle = [chunk.request for chunk in plan.prefills if chunk.request in self.prefilling]
        return StepResult([*result.started, *middle], result.finished, result.used_blocks)


class NewestFirst(PlainScheduler):
    """A stack instead of a queue."""

    def add(self, request: RequestState) -> bool:
        kept = super().add(request)
        if kept:
            self.waiting.rotate(1)
        return kept


class ShortestFirst(PlainScheduler):
    """Shortest prompt first, without a bound."""

    def schedule(self) -> StepPlan:
        rank = sorted(self.waiting, key=lambda r: (not r.num_preemptions, r.num_prompt_tokens))
        self.waiting = deque(rank)
        return super().schedule()


class HalfLengthFirst(ShortestFirst):
    """Not FCFS, and says it is."""

    claims = ("fcfs",)


class WrongContext(PlainScheduler):
    """Charges every decode for its prompt only."""

    def plan_decodes(self, plan: StepPlan) -> int:
        count = super().plan_decodes(plan)
        plan.context = sum(request.num_prompt_tokens for request in self.decoding)
        return count


class RepeatsTooOften(PlainScheduler):
    def repeats(self, plan: StepPlan) -> int:
        return 2 if plan.num_decodes and not plan.prefills else 1

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        result = super().update(plan, outcome, 1)
        return super().update(plan, outcome, 1) if steps == 2 and not result.finished else result


class Idles(PlainScheduler):
    """Waits for a full budget before it computes a prompt."""

    def plan_prompts(self, plan: StepPlan, budget: int) -> None:
        if sum(r.num_tokens for r in self.waiting) + len(self.prefilling) >= budget:
            super().plan_prompts(plan, budget)


class ForgetsToReturn(PlainScheduler):
    def add(self, request: RequestState) -> bool:
        super().add(request)
        return None  # type: ignore[return-value]


class LosesCount(PlainScheduler):
    """num_waiting leaves out who was preempted."""

    @property
    def num_waiting(self) -> int:
        return sum(not request.num_preemptions for request in self.waiting)


class NoStatus(PlainScheduler):
    def finish(self, request: RequestState, finished: list[RequestState]) -> None:
        super().finish(request, finished)
        request.status = RUNNING


class Twice(PlainScheduler):
    """A request whose prompt is done decodes, and stays in its prompt."""

    def add_chunk(self, plan: StepPlan, request: RequestState, chunk: int) -> int:
        count = super().add_chunk(plan, request, chunk)
        plan.prefills = [*plan.prefills, Prefill(request, request.num_computed_tokens, chunk)]
        return count


class DecodesEarly(PlainScheduler):
    """Decodes beside its own prompt's last chunks."""

    def plan_decodes(self, plan: StepPlan) -> int:
        early = [r for r in self.prefilling if r.num_computed_tokens]
        super().plan_decodes(plan)
        plan.decodes = {**plan.decodes, **{r.id: r for r in early}}
        plan.num_decodes = len(plan.decodes)
        return plan.num_decodes


class Breaks(PlainScheduler):
    def preempt_newest(self, plan: StepPlan) -> None:
        self.victim = self.decodes.pop()  # type: ignore[attr-defined]
