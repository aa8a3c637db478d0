"""PlainScheduler: the same policy, one step at a time, with nothing clever in it.

This is the scheduler that the labs show and let learners change, and the oracle against which the
fast one is tested: it counts every request on its own, keeps no clock, no heap and no offsets, and
walks its lists from front to back.
"""

from __future__ import annotations

from collections import deque

from minilab.core.block_hash import SegmentHasher
from minilab.core.block_pool import BlockPool
from minilab.core.config import SchedulerConfig
from minilab.core.plan import Prefill, StepOutcome, StepPlan, StepResult
from minilab.core.prefix_index import PrefixIndex
from minilab.core.request import (
    ABORTED,
    FINISHED,
    PREEMPTED,
    REJECTED,
    RUNNING,
    RequestState,
)


class PlainScheduler:
    """Continuous batching in its plainest form; see ``Scheduler`` for the attributes' meaning."""

    accepts_now = True

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self.index = PrefixIndex(
            self.pool,
            SegmentHasher(config.block_size),
            config.block_size,
            config.enable_prefix_caching,
        )
        self.waiting: deque[RequestState] = deque()
        self.prefilling: list[RequestState] = []
        self.decoding: list[RequestState] = []
        self.num_preemptions = 0
        self.peak_used = 0

    @property
    def num_running(self) -> int:
        """Requests with a running slot."""
        return len(self.prefilling) + len(self.decoding)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    def tokens_in_flight(self, steps_over: int = 0) -> int:
        """KV tokens of running requests."""
        running = [*self.prefilling, *self.decoding]
        return sum(request.num_computed_tokens for request in running)

    def blocks_in_use(self, steps_begun: int = 1) -> int:
        """KV blocks in use."""
        return self.pool.used

    def match(self, request: RequestState, steps_begun: int = 1) -> int:
        """Tokens of ``request`` that the prefix index could serve now."""
        return len(self.index.match(request)) * self.config.block_size

    def blocks(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.config.block_size)

    def add(self, request: RequestState) -> bool:
        """Queue a request, or refuse one that the pool could never hold."""
        longest = request.num_prompt_tokens + request.max_tokens - 1
        if self.blocks(longest) > self.config.num_blocks:
            request.status = REJECTED
            return False
        self.waiting.append(request)
        return True

    def abort(self, request: RequestState) -> None:
        """Forget a request and take its blocks back."""
        for place in (self.waiting, self.prefilling, self.decoding):
            if request in place:
                place.remove(request)
        self.index.release(request)
        request.status = ABORTED

    def schedule(self) -> StepPlan:
        """Plan one step: decodes, then chunks of running prompts, then new ones."""
        plan = StepPlan()
        policy, budget = self.config.policy, self.config.max_num_batched_tokens
        if policy == "mixed" or (policy == "decode-first" and not self.prefilling):
            budget -= self.plan_decodes(plan)
        if policy == "mixed" or not plan.num_decodes:
            self.plan_prompts(plan, budget)
        if not plan.prefills and not plan.num_decodes:
            self.plan_decodes(plan)
        plan.num_waiting = len(self.waiting)
        return plan

    def plan_decodes(self, plan: StepPlan) -> int:
        """Every decoding request gets one token, and a block if its last one is full."""
        while True:
            opening = [r for r in self.decoding if self.blocks(r.num_tokens) > len(r.block_table)]
            if len(opening) <= self.pool.available:
                break
            self.preempt_newest(plan)
        for request in opening:
            request.block_table += self.pool.take(1)
        plan.decodes = {request.id: request for request in self.decoding}
        plan.num_decodes = len(self.decoding)
        plan.context = sum(request.num_tokens for request in self.decoding)
        return plan.num_decodes

    def plan_prompts(self, plan: StepPlan, budget: int) -> None:
        """Chunks of prompts that run already, then new requests while they fit."""
        for request in list(self.prefilling):
            if request not in self.prefilling:
                continue
            chunk = min(request.num_tokens - request.num_computed_tokens, budget)
            need = self.blocks(request.num_computed_tokens + chunk) - len(request.block_table)
            while request in self.prefilling and need > self.pool.available:
                self.preempt_newest(plan)
            if chunk and request in self.prefilling:
                request.block_table += self.pool.take(need)
                budget -= self.add_chunk(plan, request, chunk)
        if plan.preempted or (self.config.policy == "decode-first" and self.decoding):
            return
        while self.waiting and budget and self.num_running < self.config.max_num_seqs:
            request = self.waiting[0]
            hits = self.index.match(request)
            fresh = self.blocks(request.num_tokens) - len(hits)
            if fresh + self.pool.count_idle(hits) > self.pool.available:
                return
            self.waiting.popleft()
            cached = len(hits) * self.config.block_size
            if request.num_cached_tokens < 0:
                request.num_cached_tokens = cached
            chunk = min(request.num_tokens - cached, budget)
            request.block_table = self.pool.acquire(hits)
            request.block_table += self.pool.take(self.blocks(cached + chunk) - len(hits))
            request.num_computed_tokens = cached
            request.num_published = len(hits)
            request.status = RUNNING
            self.prefilling.append(request)
            plan.admitted = [*plan.admitted, request]
            budget -= self.add_chunk(plan, request, chunk)

    def add_chunk(self, plan: StepPlan, request: RequestState, chunk: int) -> int:
        """Put a chunk into the plan; returns its tokens."""
        plan.prefills = [
            *plan.prefills,
            Prefill(request, request.num_computed_tokens, chunk),
        ]
        plan.num_prefill_tokens += chunk
        return chunk

    def repeats(self, plan: StepPlan) -> int:
        """One step at a time."""
        return 1

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        """Count what the step computed; collect first tokens and ends."""
        started: list[RequestState] = []
        finished: list[RequestState] = []
        used = self.pool.used
        self.peak_used = max(self.peak_used, used)
        for request in plan.decodes.values():
            request.num_computed_tokens += 1
            request.num_output_tokens += 1
        for request in sorted(plan.decodes.values(), key=lambda r: r.id):
            if request.num_output_tokens >= request.max_tokens:
                self.decoding.remove(request)
                self.finish(request, finished)
        for request, start, chunk in plan.prefills:
            request.num_computed_tokens = start + chunk
            self.index.publish(request)
            if request.num_computed_tokens < request.num_tokens:
                continue
            self.prefilling.remove(request)
            request.num_output_tokens += 1
            started.append(request)
            if request.num_output_tokens >= request.max_tokens:
                self.finish(request, finished)
            else:
                self.decoding.append(request)
        return StepResult(started, finished, used)

    def preempt_newest(self, plan: StepPlan) -> None:
        """Send the newest running request back to the front of the queue, without its blocks."""
        request = (self.prefilling or self.decoding).pop()
        self.index.publish_generated(request)
        self.index.release(request)
        request.status = PREEMPTED
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(request)
        plan.preempted = [*plan.preempted, request]

    def finish(self, request: RequestState, finished: list[RequestState]) -> None:
        """The last token is out: publish what was generated and free the blocks."""
        self.index.publish_generated(request)
        self.index.release(request)
        request.status = FINISHED
        finished.append(request)
