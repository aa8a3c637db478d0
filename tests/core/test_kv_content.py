"""A mock engine that keeps, for each slot of each block, which token's KV was written there.

Failure this exists for: a block that is shared, evicted, reused or restored wrongly looks fine in
every count and gives a request somebody else's KV.
"""

from __future__ import annotations

import random

import pytest
from driving import check, config, state
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import FINISHED, RequestState
from minilab.core.scheduler import Scheduler

Token = tuple[object, ...]


class Memory:
    """Slots of all blocks, and the text that each request stands for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.size = scheduler.config.block_size
        self.slots: dict[tuple[int, int], Token] = {}
        self.reads = 0

    def text(self, request: RequestState, position: int) -> Token:
        """The token at ``position``, with the salt that its KV belongs to."""
        spec = request.request
        salt = spec.cache_salt  # type: ignore[attr-defined]
        for content, length in spec.prompt:  # type: ignore[attr-defined]
            if position < length:
                return (salt, content, position)
            position -= length
        return (salt, "answer of", request.id, position)

    def write(self, request: RequestState, start: int, count: int) -> None:
        for position in range(start, start + count):
            block = request.block_table[position // self.size]
            self.slots[block, position % self.size] = self.text(request, position)

    def read(self, request: RequestState, count: int) -> None:
        for position in range(count):
            block = request.block_table[position // self.size]
            seen = self.slots.get((block, position % self.size))
            assert seen == self.text(request, position), f"request {request.id}, {position}"
        self.reads += count

    def execute(self, plan: StepPlan) -> StepOutcome:
        for request, start, count in plan.prefills:
            self.write(request, start, count)
        for request in plan.decodes.values():
            self.write(request, self.scheduler.computed(request), 1)
        for request, start, count in plan.prefills:
            self.read(request, start + count)
        for request in plan.decodes.values():
            self.read(request, self.scheduler.computed(request) + 1)
        return StepOutcome()


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6))
def test_every_read_finds_the_kv_of_its_own_text(seed: int) -> None:
    """Shared prefixes, salts, tiny pools, chunks of all sizes, preemption, aborts."""
    rng = random.Random(seed)
    s = Scheduler(
        config(
            rng.randint(6, 20),
            block_size=rng.choice([1, 2, 4]),
            max_num_batched_tokens=rng.randint(4, 24),
            policy=rng.choice(["mixed", "prefill-first", "decode-first"]),
            enable_prefix_caching=True,
        )
    )
    memory = Memory(s)
    alive: list[RequestState] = []
    for i in range(40):
        if rng.random() < 0.6:
            shared, own = rng.randint(0, 12), rng.randint(1, 4)
            text = tuple(x for x in ((rng.randint(0, 1), shared), (100 + i, own)) if x[1])
            salt = rng.choice([None, None, "a"])
            request = state(i, shared + own, rng.randint(1, 12), text, cache_salt=salt)
            if s.add(request):
                alive.append(request)
        if alive and rng.random() < 0.1:
            victim = rng.choice(alive)
            if victim.status < FINISHED:
                s.abort(victim)
        plan = s.schedule()
        if plan:
            s.update(plan, memory.execute(plan))
        check(s)
    while plan := s.schedule():
        s.update(plan, memory.execute(plan))
    assert memory.reads or not any(request.num_output_tokens for request in alive)


def test_an_evicted_block_is_not_found_under_its_old_text() -> None:
    """A stale hash would serve the new content of the block as if it were the old one."""
    s = Scheduler(config(4, enable_prefix_caching=True))
    for i, content in enumerate((7, 8, 7)):
        request = state(i, 13, 1, ((content, 13),))
        s.add(request)
        memory = Memory(s)
        while plan := s.schedule():
            s.update(plan, memory.execute(plan))
    assert request.num_cached_tokens == 0, "text 7 was evicted by text 8"


def test_the_mock_engine_can_fail() -> None:
    """Two requests on one block table: the second one's write must be caught."""
    s = Scheduler(config(16))
    memory = Memory(s)
    first, second = state(0, 4, 3, ((1, 4),)), state(1, 4, 3, ((2, 4),))
    for request in (first, second):
        s.add(request)
    plan = s.schedule()
    second.block_table = first.block_table
    with pytest.raises(AssertionError, match="request 0"):
        memory.execute(plan)
