"""Schedulers with one mistake each, of the kind that a learner's own has; see test_conform.py."""

from __future__ import annotations

from collections import deque
from typing import Any

from minilab.core.block_hash import SegmentHasher
from minilab.core.config import SchedulerConfig
from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.plan import Prefill, StepOutcome, StepPlan, StepResult
from minilab.core.prefix_index import PrefixIndex
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


class KeepsBlocks(PlainScheduler):
    """Who is done forgets its table, and the pool never hears of it."""

    def finish(self, request: RequestState, finished: list[RequestState]) -> None:
        table = request.block_table
        super().finish(request, finished)
        self.pool.blank = [b for b in self.pool.blank if b not in table]


class LeaksOnAbort(PlainScheduler):
    def abort(self, request: RequestState) -> None:
        for place in (self.waiting, self.prefilling, self.decoding):
            if request in place:
                place.remove(request)
        request.block_table = []
        request.status = request.status.ABORTED


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


class TakesWithoutAsking(PlainScheduler):
    """Never preempts: takes blocks until there are none."""

    def plan_decodes(self, plan: StepPlan) -> int:
        for request in self.decoding:
            if self.blocks(request.num_tokens) > len(request.block_table):
                request.block_table += self.pool.take(1)
        plan.decodes = {request.id: request for request in self.decoding}
        plan.num_decodes = len(self.decoding)
        plan.context = sum(request.num_tokens for request in self.decoding)
        return plan.num_decodes


class LateBlock(PlainScheduler):
    """Opens a block one step too late."""

    def plan_decodes(self, plan: StepPlan) -> int:
        for request in self.decoding:
            if self.blocks(request.num_tokens - 1) > len(request.block_table):
                request.block_table += self.pool.take(1)
        plan.decodes = {request.id: request for request in self.decoding}
        plan.num_decodes = len(self.decoding)
        plan.context = sum(request.num_tokens for request in self.decoding)
        return plan.num_decodes


class AcceptsAll(PlainScheduler):
    def add(self, request: RequestState) -> bool:
        self.waiting.append(request)
        return True


class RefusesMore(PlainScheduler):
    """Counts the last token, whose KV is never written."""

    def add(self, request: RequestState) -> bool:
        if self.blocks(request.num_prompt_tokens + request.max_tokens) > self.config.num_blocks:
            request.status = request.status.REJECTED
            return False
        return super().add(request)


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


class Unsalted(PlainScheduler):
    """The block hash leaves the salt out."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        size = config.block_size
        self.index = PrefixIndex(self.pool, _WithoutSalt(size), size, config.enable_prefix_caching)


class _WithoutSalt(SegmentHasher):
    def extend(self, request: RequestState, num_tokens: int) -> None:
        spec: Any = request.request
        request.request = spec._replace(cache_salt=None)
        super().extend(request, num_tokens)
        request.request = spec


class Parentless(PlainScheduler):
    """A block is hashed alone, without what comes before it."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        size = config.block_size
        self.index = PrefixIndex(
            self.pool, _WithoutParent(size), size, config.enable_prefix_caching
        )


class _WithoutParent(SegmentHasher):
    def extend(self, request: RequestState, num_tokens: int) -> None:
        spec: Any = request.request
        while len(request.block_hashes) < num_tokens // self.block_size:
            at = len(request.block_hashes) * self.block_size
            content, length = (spec.prompt or ((-1 - request.id, request.num_prompt_tokens),))[0]
            own = content if at + self.block_size <= length else (request.id, at)
            request.block_hashes.append(hash((own, self.block_size)))


class PublishesEarly(PlainScheduler):
    """Blocks can be found as soon as they are planned."""

    def add_chunk(self, plan: StepPlan, request: RequestState, chunk: int) -> int:
        count = super().add_chunk(plan, request, chunk)
        computed = request.num_computed_tokens
        request.num_computed_tokens = computed + chunk
        self.index.publish(request)
        request.num_computed_tokens = computed
        return count


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


class Endless(PlainScheduler):
    """Waits in a loop for a block that nobody gives back."""

    def plan_decodes(self, plan: StepPlan) -> int:
        opening = [r for r in self.decoding if self.blocks(r.num_tokens) > len(r.block_table)]
        while len(opening) > self.pool.available:
            pass
        return super().plan_decodes(plan)


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
