"""A scheduler that shares nothing with ours but the interface; see test_conform.py."""

from __future__ import annotations

from minilab.core.config import SchedulerConfig
from minilab.core.plan import Prefill, StepOutcome, StepPlan, StepResult
from minilab.core.request import RequestState, RequestStatus


class FromScratch:
    """First come, first served; blocks to the end are taken at admission, so none is preempted."""

    accepts_now = True
    claims = ("fcfs",)

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.pool = OwnPool(config.num_blocks)
        self.queue: list[RequestState] = []
        self.active: list[RequestState] = []

    num_running = property(lambda self: len(self.active))
    num_waiting = property(lambda self: len(self.queue))

    def blocks(self, request: RequestState) -> int:
        longest = request.num_prompt_tokens + request.max_tokens - 1
        return -(-longest // self.config.block_size)

    def add(self, request: RequestState) -> bool:
        if self.blocks(request) > self.config.num_blocks:
            request.status = RequestStatus.REJECTED
            return False
        self.queue.append(request)
        return True

    def abort(self, request: RequestState) -> None:
        self.leave(request, RequestStatus.ABORTED)

    def leave(self, request: RequestState, status: RequestStatus) -> None:
        for place in (self.queue, self.active):
            if request in place:
                place.remove(request)
        self.pool.free |= set(request.block_table)
        request.block_table = []
        request.status = status

    def schedule(self) -> StepPlan:
        plan, left = StepPlan(), self.config.max_num_batched_tokens
        plan.decodes = {r.id: r for r in self.active if r.num_output_tokens}
        plan.num_decodes = len(plan.decodes)
        plan.context = sum(r.num_computed_tokens + 1 for r in plan.decodes.values())
        left -= plan.num_decodes
        while self.queue and len(self.active) < self.config.max_num_seqs:
            need = self.blocks(self.queue[0])
            if need > self.pool.available:
                break
            request = self.queue.pop(0)
            request.block_table = [self.pool.free.pop() for _ in range(need)]
            self.active.append(request)
            plan.admitted = [*plan.admitted, request]
        for request in self.active:
            chunk = min(left, request.num_prompt_tokens - request.num_computed_tokens)
            if chunk and not request.num_output_tokens:
                plan.prefills = [
                    *plan.prefills,
                    Prefill(request, request.num_computed_tokens, chunk),
                ]
                plan.num_prefill_tokens += chunk
                left -= chunk
        return plan

    def repeats(self, plan: StepPlan) -> int:
        return 1

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        used, started = self.pool.used, []
        for request, _, chunk in plan.prefills:
            request.num_computed_tokens += chunk
            if request.num_computed_tokens == request.num_prompt_tokens:
                request.num_output_tokens = 1
                started.append(request)
        for request in plan.decodes.values():
            request.num_computed_tokens += 1
            request.num_output_tokens += 1
        done = [r for r in self.active if r.num_output_tokens == r.max_tokens]
        for request in done:
            self.leave(request, RequestStatus.FINISHED)
        return StepResult(started, done, used)


class OwnPool:
    """A set of free ids: all that a pool must be."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free = set(range(num_blocks))

    available = property(lambda self: len(self.free))
    used = property(lambda self: self.num_blocks - len(self.free))
