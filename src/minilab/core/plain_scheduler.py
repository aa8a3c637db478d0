"""PlainScheduler: the same policy, one step at a time, with nothing clever in it.

This is the scheduler that the labs show and let learners change, and the oracle against which the
fast one is tested: it counts every request on its own, keeps no clock, no heap and no offsets, and
walks its lists from front to back.
"""

from __future__ import annotations

from minilab.core.plan import Prefill, StepOutcome, StepPlan, StepResult
from minilab.core.request import FINISHED, PREEMPTED, RUNNING, RequestState
from minilab.core.request_lists import RequestLists


class PlainScheduler(RequestLists):
    """Continuous batching in its plainest form."""

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
