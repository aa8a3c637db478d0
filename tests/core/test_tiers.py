"""Tiers: what is kept, what sinks, what is fetched, and what it costs a request that waits."""

from __future__ import annotations

import random
from typing import Any

import pytest
from driving import check, config, drive, state
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.core.request import FINISHED, WAITING_FOR_REMOTE_KVS, RequestState
from minilab.core.scheduler import Scheduler
from minilab.core.tiers import (
    TierSpec,
    TierStore,
    always,
    beats_recompute,
    find,
    load_seconds,
    parse_tiers,
)


def test_a_store_evicts_the_least_recently_used() -> None:
    store = TierStore(2)
    assert store.put(1, 0) == [] and store.put(2, 0) == []
    store.touch(1)
    assert store.put(3, 0) == [2] and store.num_evictions == 1
    assert TierStore(0).put(5, 0) == [5], "a tier without room passes everything on"


def test_a_block_cannot_be_read_before_it_is_written() -> None:
    store = TierStore(4)
    store.put(1, 100)
    assert 1 in store and not store.readable(1, 99) and store.readable(1, 100)


def test_a_hit_is_a_leading_run_over_all_tiers_each_block_from_the_nearest() -> None:
    near, far = TierStore(9), TierStore(9)
    for key in (1, 3):
        near.put(key, 0)
    for key in (1, 2, 5):
        far.put(key, 0)
    assert [(p.key, p.tier) for p in find([near, far], [1, 2, 3, 4, 5], 0)] == [
        (1, 0), (2, 1), (3, 0),
    ]  # fmt: skip


def test_tiers_work_side_by_side() -> None:
    specs = [TierSpec("cpu", 1, 100.0, 1, 0.5), TierSpec("ssd", 1, 10.0, 1, 1.0)]
    near, far = TierStore(9), TierStore(9)
    for key in range(4):
        near.put(key, 0)
    far.put(4, 0)
    places = find([near, far], range(5), 0)
    assert load_seconds(places[:4], specs, 10.0) == pytest.approx(0.5 + 4 * 0.1)
    assert load_seconds(places, specs, 10.0) == pytest.approx(1.0 + 1.0)


@pytest.mark.parametrize(
    ("fetch", "compute", "blocks"),
    [
        ([1.1, 1.2, 1.3], [1.0, 2.0, 3.0], 3),  # a latency that the third block has paid off
        ([1.1, 1.2], [0.5, 1.0], 0),  # never pays
        ([0.1, 0.2, 9.0], [1.0, 2.0, 3.0], 2),  # the third comes from a slow tier
        ([1.0], [1.0], 0),  # a tie is not worth the blocks
    ],
)
def test_as_many_blocks_as_save_the_most_time(
    fetch: list[float], compute: list[float], blocks: int
) -> None:
    assert beats_recompute(fetch, compute) == blocks
    assert always(fetch, compute) == len(fetch)


def test_tiers_as_text() -> None:
    near, far = parse_tiers("cpu:gib=2:read=50e9+remote")
    assert (near.name, near.gib, near.read, near.shared) == ("cpu", 2.0, 50e9, False)
    assert far.name == "remote" and far.shared
    assert parse_tiers("") == ()
    assert [t.read for t in parse_tiers("cpu:read=2e+09+ssd:read=1e+9")] == [2e9, 1e9]
    for text, says in (
        ("gpu", "known are cpu"),
        ("cpu:size=1", "no field 'size'"),
        ("cpu:gib=x", "no number"),
        ("cpu:gib=0", "above 0"),
    ):
        with pytest.raises(ValueError, match=says):
            parse_tiers(text)


# -- in a scheduler -----------------------------------------------------------------------------


class FakeTiers:
    """A tier that keeps the keys of everything saved, for ever; loads end when the test says."""

    def __init__(self, most: int = 10**9) -> None:
        self.keys: set[int] = set()
        self.most = most

    def get_num_new_matched_tokens(self, request: RequestState, computed: int) -> int:
        return min(self.matched_tokens(request, computed), self.most)

    def matched_tokens(self, request: RequestState, computed: int) -> int:
        found = 0
        for key in request.block_hashes[computed // 4 : (request.num_tokens - 1) // 4]:
            if key not in self.keys:
                break
            found += 4
        return found

    def save(self, request: RequestState) -> None:
        self.keys.update(request.block_hashes[: request.num_published])


def tiered(blocks: int, tiers: Any, **more: Any) -> Scheduler:
    return Scheduler(config(blocks, enable_prefix_caching=True, **more), tiers=tiers)


def served(scheduler: Scheduler, i: int, text: tuple[tuple[int, int], ...], output: int = 1) -> Any:
    request = state(i, sum(n for _, n in text), output, text)
    scheduler.add(request)
    drive(scheduler)
    return request


def test_what_hbm_evicted_comes_back_and_only_the_rest_is_computed() -> None:
    tiers = FakeTiers()
    scheduler = tiered(6, tiers)
    served(scheduler, 0, ((1, 16),))
    served(scheduler, 1, ((2, 24),))  # the pool is full of other text now
    request = state(2, 18, 3, ((1, 16), (9, 2)))
    scheduler.add(request)
    plan = scheduler.schedule()
    assert not plan and plan.loads == [request] and request.status == WAITING_FOR_REMOTE_KVS
    assert request.num_external_tokens == 16 and len(request.block_table) == 5
    check(scheduler)
    assert not scheduler.schedule(), "its KV is not there yet"
    scheduler.remote.finish_loading(2)
    plan = scheduler.schedule()
    assert [(c.start, c.num_tokens) for c in plan.prefills] == [(16, 2)]
    scheduler.update(plan)
    drive(scheduler)
    assert request.num_output_tokens == 3 and scheduler.pool.used == 0


def test_others_go_on_while_one_waits_for_its_load() -> None:
    tiers = FakeTiers()
    scheduler = tiered(12, tiers)
    served(scheduler, 0, ((1, 16),))
    served(scheduler, 1, ((2, 44),))
    waits, goes = state(2, 18, 2, ((1, 16), (9, 2))), state(3, 8, 2, ((3, 8),))
    for request in (waits, goes):
        scheduler.add(request)
    plan = scheduler.schedule()
    assert plan.loads == [waits] and [c.request for c in plan.prefills] == [goes]
    drive(scheduler)
    assert goes.status == FINISHED and waits.status == WAITING_FOR_REMOTE_KVS


def test_loaded_blocks_are_found_by_the_next_prompt() -> None:
    tiers = FakeTiers()
    scheduler = tiered(8, tiers)
    served(scheduler, 0, ((1, 16),))
    served(scheduler, 1, ((2, 32),))
    scheduler.add(state(2, 17, 1, ((1, 17),)))
    scheduler.schedule()
    scheduler.remote.finish_loading(2)
    drive(scheduler)
    tiers.keys.clear()
    assert served(scheduler, 3, ((1, 17),)).num_cached_tokens == 16


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 20))
def test_loads_lose_no_block_and_no_token(seed: int, blocks: int) -> None:
    """Late, early and given-up loads, tiny pools, preemption: everyone gets exactly its tokens."""
    rng = random.Random(seed)
    tiers = FakeTiers(rng.choice([4, 8, 10**9]))
    scheduler = tiered(blocks, tiers)
    alive = []
    for step in range(120):
        if step < 60 and rng.random() < 0.4:
            prompt = rng.randint(1, 18)
            request = state(step, prompt, rng.randint(1, 9), ((rng.randint(0, 2), prompt),))
            if scheduler.add(request):
                alive.append(request)
        if scheduler.remote.receiving and rng.random() < (0.4 if step < 60 else 1.0):
            scheduler.remote.finish_loading(rng.choice(list(scheduler.remote.receiving)))
        if alive and rng.random() < 0.05:
            victim = alive.pop(rng.randrange(len(alive)))
            if victim.status != FINISHED:
                scheduler.abort(victim)
        if plan := scheduler.schedule():
            scheduler.update(plan)
        check(scheduler)
    for _ in range(2000):
        if not (scheduler.num_running or scheduler.num_waiting or scheduler.remote.receiving):
            break
        for request_id in list(scheduler.remote.receiving):
            scheduler.remote.finish_loading(request_id)
        plan = scheduler.schedule()
        # Who finds no block while loads hold them gives up its own, and nothing runs in that step.
        assert plan or plan.loads or plan.preempted, "stuck"
        if plan:
            scheduler.update(plan)
        check(scheduler)
    assert all(request.num_output_tokens == request.max_tokens for request in alive)
    assert scheduler.pool.used == 0
