"""Schedulers with one mistake each in blocks, admission or prefix cache; see test_conform.py."""

from __future__ import annotations

from typing import Any

from minilab.core.block_hash import SegmentHasher
from minilab.core.config import SchedulerConfig
from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.plan import StepPlan
from minilab.core.prefix_index import PrefixIndex
from minilab.core.request import RequestState


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


class Endless(PlainScheduler):
    """Waits in a loop for a block that nobody gives back."""

    def plan_decodes(self, plan: StepPlan) -> int:
        opening = [r for r in self.decoding if self.blocks(r.num_tokens) > len(r.block_table)]
        while len(opening) > self.pool.available:
            pass
        return super().plan_decodes(plan)
