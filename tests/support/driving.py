"""Drives a scheduler step by step with a fake executor, checking the house rules after each."""

from __future__ import annotations

import random
from collections.abc import Callable

from minilab.core.config import SchedulerConfig
from minilab.core.plan import PLAIN, StepOutcome, StepPlan
from minilab.core.request import RequestState
from minilab.core.scheduler import Scheduler
from minilab.facts.request import Request


def config(blocks: int = 16, **more: object) -> SchedulerConfig:
    """A small pool unless told otherwise."""
    values = {
        "block_size": 4,
        "max_num_batched_tokens": 32,
        "max_num_seqs": 4,
        "enable_prefix_caching": False,
    }
    return SchedulerConfig(blocks, **{**values, **more})  # type: ignore[arg-type]


def state(
    i: int,
    prompt: int,
    output: int,
    text: tuple[tuple[int, int], ...] | None = None,
    **more: object,
) -> RequestState:
    """A request that nobody has touched; ``remote_prefill`` and ``hold_blocks`` go to its state."""
    flags = {k: more.pop(k) for k in ("remote_prefill", "hold_blocks") if k in more}
    return RequestState(Request(i, 0.0, prompt, output, text, **more), **flags)  # type: ignore[arg-type]


def everyone(scheduler: Scheduler) -> list[RequestState]:
    """All requests that hold blocks."""
    remote = scheduler.remote
    return [
        *scheduler.prefilling,
        *scheduler.batch.requests.values(),
        *remote.receiving.values(),
        *remote.ready,
        *remote.sending.values(),
    ]


def check(scheduler: Scheduler) -> None:
    """Blocks conserved, tables long enough, nothing shared across salts, counts in step."""
    holders = everyone(scheduler)
    scheduler.pool.check([request.block_table for request in holders])
    size = scheduler.config.block_size
    for request in holders:
        assert len(request.block_table) >= -(-scheduler.computed(request) // size)
    salts: dict[int, object] = {}
    for request in holders:
        for block in request.block_table:
            spec = request.request
            assert salts.setdefault(block, spec.cache_salt) == spec.cache_salt  # type: ignore[attr-defined]
    batch = scheduler.batch
    assert batch.kv_tokens == sum(scheduler.computed(r) for r in batch.requests.values())
    for request in scheduler.waiting:
        assert not request.block_table


Outcome = Callable[[StepPlan], StepOutcome]


def drive(
    scheduler: Scheduler, execute: Outcome = lambda plan: PLAIN, limit: int = 2000
) -> list[StepPlan]:
    """Steps until nothing can be done; returns the plans."""
    plans = []
    while plan := scheduler.schedule():
        assert len(plans) < limit, f"no end after {limit} steps"
        budget = scheduler.config.max_num_batched_tokens
        assert plan.num_tokens <= budget, f"{plan.num_tokens} tokens planned, budget {budget}"
        assert scheduler.num_running <= scheduler.config.max_num_seqs
        check_before = [len(r.block_table) for r in everyone(scheduler)]
        assert all(length >= 0 for length in check_before)
        scheduler.update(plan, execute(plan))
        check(scheduler)
        plans.append(plan)
    return plans


class RandomDrafter:
    """Proposes up to ``most`` drafts per request and accepts a random part of them."""

    def __init__(self, seed: int, most: int = 4, stalls: bool = False) -> None:
        self.random = random.Random(seed)
        self.most = most
        self.least = 0 if stalls else 1
        self.produced: dict[int, int] = {}

    def __call__(self, plan: StepPlan) -> StepOutcome:
        """Counts for this step, drafts for the next."""
        counts = {}
        for request_id in plan.decodes:
            most = 1 + plan.drafts.get(request_id, 0)
            counts[request_id] = self.random.randint(self.least, most)
        for request_id, count in counts.items():
            self.produced[request_id] = self.produced.get(request_id, 0) + count
        drafts = {request_id: self.random.randint(0, self.most) for request_id in plan.decodes}
        drafts |= {chunk.request.id: self.most for chunk in plan.prefills}
        return StepOutcome(tokens=counts, drafts=drafts)

    execute = __call__
