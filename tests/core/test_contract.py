"""The whole contract with an executor: uneven counts, drafts, transfers, aborts, early ends.

Only later chapters use all of it, but every part goes through the one scheduler, so it is built and
tried here with an executor that makes up its answers.
"""

from __future__ import annotations

import random

import pytest
from driving import RandomDrafter, check, config, drive, state
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import (
    ABORTED,
    FINISHED,
    HELD,
    WAITING_FOR_REMOTE_KVS,
    RequestState,
)
from minilab.core.scheduler import Scheduler


def scheduler(blocks: int = 16, **more: object) -> Scheduler:
    return Scheduler(config(blocks, **more))


# -- drafts -------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 40), st.booleans(), st.booleans())
def test_drafts_and_stalls_lose_no_token_and_no_block(
    seed: int, blocks: int, cache: bool, stalls: bool
) -> None:
    """Counts from 0 to 1 + drafts, tiny pools, preemption: everyone gets exactly its tokens."""
    rng = random.Random(seed)
    s = scheduler(blocks, enable_prefix_caching=cache)
    requests = []
    for i in range(6):
        prompt = rng.randint(1, 12)
        request = state(i, prompt, rng.randint(1, 20), ((rng.randint(0, 1), prompt),))
        if s.add(request):
            requests.append(request)
    drafter = RandomDrafter(seed, stalls=stalls)
    drive(s, drafter)
    for request in requests:
        assert request.status == FINISHED
        assert request.num_output_tokens == request.max_tokens
    assert s.pool.used == 0


def test_a_step_of_k_tokens_moves_one_request_and_not_its_neighbours() -> None:
    s = scheduler(32)
    fast, slow = state(0, 5, 20), state(1, 6, 20)
    for request in (fast, slow):
        s.add(request)
    s.update(s.schedule(), StepOutcome(drafts={0: 3}))
    plan = s.schedule()
    assert plan.drafts == {0: 3} and plan.num_tokens == 2 + 3
    assert s.repeats(plan) == 1, "a plan with drafts does not repeat"
    s.update(plan, StepOutcome(tokens={0: 4}))
    check(s)
    assert s.computed(fast) == 5 + 4 and s.computed(slow) == 6 + 1
    plan = s.schedule()
    assert not plan.drafts
    s.update(plan)
    assert s.computed(fast) == 10


def test_rejected_drafts_give_their_blocks_back() -> None:
    s = scheduler(32, block_size=2)
    request = state(0, 4, 20)
    s.add(request)
    s.update(s.schedule(), StepOutcome(drafts={0: 8}))
    s.update(s.schedule(), StepOutcome())
    assert len(request.block_table) == 3  # 5 computed tokens, 2 to a block
    check(s)


def test_drafts_never_preempt() -> None:
    """Where only the plain step fits, the guess is dropped and nobody loses blocks."""
    s = scheduler(4, block_size=4)
    requests = [state(0, 7, 2), state(1, 7, 2)]
    for request in requests:
        s.add(request)
    s.update(s.schedule(), StepOutcome(drafts={0: 1, 1: 1}))
    plan = s.schedule()
    assert not plan.drafts and not plan.preempted and plan.num_decodes == 2


def test_drafts_share_what_the_budget_leaves() -> None:
    s = scheduler(64, max_num_seqs=4, max_num_batched_tokens=8)
    for i in range(4):
        s.add(state(i, 2, 20))
    s.update(s.schedule(), StepOutcome(drafts=dict.fromkeys(range(4), 3)))
    plan = s.schedule()
    assert plan.num_tokens == 8 and plan.num_decodes == 4
    assert sum(plan.drafts.values()) == 4


def test_a_count_that_the_plan_did_not_allow_is_refused() -> None:
    s = scheduler()
    s.add(state(0, 4, 9))
    s.update(s.schedule())
    with pytest.raises(ValueError, match="yielded 3 tokens; the plan allows 0 to 1"):
        s.update(s.schedule(), StepOutcome(tokens={0: 3}))


def test_an_early_end_frees_the_blocks() -> None:
    """End of text before the limit, in a decode and at the very first token."""
    s = scheduler()
    long, short = state(0, 4, 50), state(1, 4, 50)
    for request in (long, short):
        s.add(request)
    result = s.update(s.schedule(), StepOutcome(finished={1: "stop"}))
    assert result.finished == [short] and short.num_output_tokens == 1
    for _ in range(3):
        s.update(s.schedule())
    result = s.update(s.schedule(), StepOutcome(finished={0: "stop"}))
    assert result.finished == [long] and long.num_output_tokens == 5
    assert s.pool.used == 0
    assert not s.schedule()


# -- transfers ------------------------------------------------------------------------------------


def test_prefill_side_holds_its_blocks_until_they_are_sent() -> None:
    s = scheduler()
    request = state(0, 9, 1, hold_blocks=True)
    s.add(request)
    s.update(s.schedule())
    assert request.status == HELD and s.pool.used == 3
    assert not s.schedule(), "a held request computes nothing"
    s.remote.finish_sending(0)
    assert request.status == FINISHED and s.pool.used == 0


@pytest.mark.parametrize(("first_token", "steps"), [(True, 4), (False, 5)])
def test_decode_side_reserves_before_the_transfer(first_token: bool, steps: int) -> None:
    """5 output tokens: 4 steps if the prefill side gave the first, else 5 with one recompute."""
    s = scheduler()
    request = state(0, 9, 5, remote_prefill=True)
    assert s.reserve(request)
    assert request.status == WAITING_FOR_REMOTE_KVS and s.pool.used == 3
    assert not s.schedule(), "its KV is not there yet"
    s.remote.finish_recving(0, first_token)
    plans = drive(s)
    assert len(plans) == steps and request.num_output_tokens == 5
    assert [p.num_prefill_tokens for p in plans] == [int(not first_token)] + [0] * (steps - 1)


def test_reservation_without_room_takes_nothing() -> None:
    s = scheduler(4)
    s.add(state(0, 8, 3))
    s.update(s.schedule())
    assert not s.reserve(state(1, 12, 3, remote_prefill=True))
    check(s)


def test_a_reservation_finds_what_is_cached_here() -> None:
    """Only the rest has to be sent."""
    s = scheduler(enable_prefix_caching=True)
    s.add(state(0, 8, 1, ((9, 8),)))
    drive(s)
    request = state(1, 12, 4, ((9, 12),), remote_prefill=True)
    assert s.reserve(request) and request.num_cached_tokens == 8
    check(s)


@pytest.mark.parametrize("first_token", [True, False])
def test_a_broken_transfer_recomputes_here(first_token: bool) -> None:
    s = scheduler()
    request = state(0, 9, 5, remote_prefill=True)
    request.num_output_tokens = int(first_token)
    s.reserve(request)
    s.remote.fail(0)
    assert s.pool.used == 0
    plans = drive(s)
    assert plans[0].num_prefill_tokens == 9 + int(first_token)
    assert request.num_output_tokens == 5


def test_a_broken_send_lets_the_blocks_go() -> None:
    s = scheduler()
    s.add(state(0, 9, 1, hold_blocks=True))
    s.update(s.schedule(), StepOutcome(failed=()))
    s.remote.fail(0)
    assert s.pool.used == 0


def test_events_can_arrive_with_an_outcome() -> None:
    """A connector reports with the step, as vLLM's does."""
    s = scheduler(32)
    arriving, leaving, running = state(0, 9, 4), state(1, 5, 1, hold_blocks=True), state(2, 4, 9)
    s.reserve(arriving)
    for request in (leaving, running):
        s.add(request)
    s.update(s.schedule())
    s.update(s.schedule(), StepOutcome(finished_recving=(0,), finished_sending=(1,)))
    check(s)
    assert leaving.status == FINISHED
    drive(s)
    assert arriving.num_output_tokens == 4 and running.num_output_tokens == 9


# -- aborts ---------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_aborts_at_any_moment_leak_nothing(seed: int) -> None:
    """Waiting, prefilling, decoding, reserved, ready, held, preempted: all blocks come back."""
    rng = random.Random(seed)
    s = scheduler(rng.randint(6, 24), enable_prefix_caching=rng.random() < 0.5)
    alive: list[RequestState] = []
    for step in range(60):
        if rng.random() < 0.5:
            remote = rng.random() < 0.3
            request = state(
                step,
                rng.randint(1, 20),
                rng.randint(1, 12),
                ((rng.randint(0, 2), 50),),
                hold_blocks=rng.random() < 0.2,
                remote_prefill=remote,
            )
            if s.reserve(request) if remote and s.fits(request) else s.add(request):
                alive.append(request)
        if rng.random() < 0.3 and s.remote.receiving:
            chosen = rng.choice(list(s.remote.receiving))
            if rng.random() < 0.3:
                s.remote.fail(chosen)
            else:
                s.remote.finish_recving(chosen, rng.random() < 0.5)
        if rng.random() < 0.3 and s.remote.sending:
            s.remote.finish_sending(rng.choice(list(s.remote.sending)))
        if alive and rng.random() < 0.4:
            victim = rng.choice(alive)
            if victim.status not in (FINISHED, ABORTED):
                s.abort(victim)
        plan = s.schedule()
        if plan:
            s.update(plan, RandomDrafter(seed + step)(plan))
        check(s)
    for request in alive:
        if request.status not in (FINISHED, ABORTED):
            s.abort(request)
    check(s)
    assert s.pool.used == 0
    assert not s.waiting and not s.num_running


def test_plans_are_what_an_engine_can_run() -> None:
    """Prefill chunks name positions in order; decodes have room for their next token."""
    s = scheduler(24, max_num_batched_tokens=8)
    for i in range(5):
        s.add(state(i, 3 + 5 * i, 6))
    done: dict[int, int] = {}

    def run(plan: StepPlan) -> StepOutcome:
        for request, start, count in plan.prefills:
            if start:
                assert done[request.id] == start, "a chunk was skipped or repeated"
            done[request.id] = start + count
            assert len(request.block_table) * 4 >= start + count
        for request in plan.decodes.values():
            assert done[request.id] == s.computed(request)
            assert len(request.block_table) * 4 > s.computed(request)
            done[request.id] += 1
        return StepOutcome()

    drive(s, run)
