"""Each test is a mistake that a paged, chunked, prefix-cached scheduler is known to invite.

The numbers are those of the list in the design notes; the others are bugs that users of small
public engines have met.
"""

from __future__ import annotations

import pytest
from driving import check, config, drive, state

from minilab.core.plan import PLAIN
from minilab.core.request import FINISHED, PREEMPTED, REJECTED
from minilab.core.scheduler import Scheduler
from minilab.facts.request import Request
from minilab.facts.ticks import to_ticks


def scheduler(blocks: int = 16, **more: object) -> Scheduler:
    return Scheduler(config(blocks, **more))


def test_trap_1_recompute_whose_last_chunk_is_one_token() -> None:
    """A resumed request with one token left looks like a decode; it must still get its token."""
    s = scheduler(4, block_size=4, max_num_batched_tokens=4, max_num_seqs=2)
    first, second = state(0, 4, 6), state(1, 4, 8)
    for request in (first, second):
        s.add(request)
    plans = drive(s)
    assert second.num_preemptions == 1
    resumed = [c for p in plans for c in p.prefills if c.request is second and c.start > 0]
    assert any(chunk.num_tokens == 1 for chunk in resumed), "the case did not come up"
    assert (first.num_output_tokens, second.num_output_tokens) == (6, 8)


def test_trap_2_a_blocked_head_does_not_slip_in_when_its_cached_blocks_are_evicted() -> None:
    """Decode growth evicts the head's own hits; a shorter hit must not turn into a smaller need."""
    s = scheduler(
        8, block_size=1, max_num_batched_tokens=4, max_num_seqs=4, enable_prefix_caching=True
    )
    s.add(state(0, 3, 1, ((7, 3),)))
    drive(s)  # leaves 3 idle blocks of text 7
    s.add(state(1, 4, 5))
    s.update(s.schedule())
    s.add(state(2, 6, 1, ((7, 6),)))
    seen = []
    while (plan := s.schedule()).num_decodes:
        seen.append([chunk.request.id for chunk in plan.prefills])
        s.update(plan)
        check(s)
    assert seen and not any(seen), "admitted while an older request still grew"
    drive(s)


def test_trap_3_an_arrival_on_a_step_boundary_falls_on_one_side() -> None:
    """Steps of 0.1 s, arrivals at multiples of it: float sums would differ by their order."""
    from worlds import World

    requests = tuple(Request(i, 0.1 * (3 * i), 5, 12) for i in range(40))
    world = World(requests, config(60), cost="constant")
    times = [
        [(s.scheduled_at, s.first_token_at) for s in world.run(skip=skip).states.values()]
        for skip in (True, False)
    ]
    assert times[0] == times[1]
    late = times[0][1][0] - to_ticks(0.3)  # three rounded steps against one rounded arrival
    assert 0 <= late < 4, "an arrival at the very end of a step joins the next"


def test_trap_4_the_finish_heap_holds_a_preempted_request_twice() -> None:
    """Preempted and resumed without a decode step between: the older entry must be dead."""
    s = scheduler(8)
    request = state(0, 3, 5)
    s.add(request)
    s.update(s.schedule())
    for _ in range(2):
        s._preempt_newest(plan := s.schedule())
        assert request.status == PREEMPTED and plan.preempted
        s.update(s.schedule())
    plans = drive(s)
    assert request.num_output_tokens == 5 and request.status == FINISHED
    assert len(plans) == 5 - 3


@pytest.mark.parametrize("prompt", [4, 8, 12])
def test_trap_5_a_full_prefix_hit_recomputes_its_last_block(prompt: int) -> None:
    """Prompt at a multiple of the block: the last whole block is computed again, never 0 tokens."""
    s = scheduler(enable_prefix_caching=True)
    s.add(state(0, prompt, 1, ((9, prompt),)))
    drive(s)
    again = state(1, prompt, 1, ((9, prompt),))
    s.add(again)
    (plan,) = drive(s)
    assert again.num_cached_tokens == prompt - 4
    assert [chunk.num_tokens for chunk in plan.prefills] == [4]


def test_trap_6_only_full_blocks_are_published() -> None:
    """A partial last block must not be found by a longer prompt that starts with the same text."""
    s = scheduler(enable_prefix_caching=True)
    s.add(state(0, 6, 1, ((9, 6),)))
    drive(s)
    longer = state(1, 12, 1, ((9, 12),))
    s.add(longer)
    drive(s)
    assert longer.num_cached_tokens == 4


def test_trap_7_admission_counts_idle_hits_as_used_up() -> None:
    """Idle hits cannot be both reused and evicted for the rest of the same request."""
    s = scheduler(4, enable_prefix_caching=True)
    s.add(state(0, 8, 1, ((9, 8),)))
    drive(s)
    assert s.pool.num_idle == 2
    s.add(state(1, 8, 9))
    s.update(s.schedule())
    check(s)
    late = state(2, 13, 1, ((9, 13),))
    s.add(late)
    plan = s.schedule()
    assert late not in plan.admitted  # 2 hits + 2 fresh blocks, and 2 blocks are left in all
    s.update(plan)
    drive(s)
    assert late.status == FINISHED


def test_trap_8_two_requests_compute_one_block_in_the_same_step() -> None:
    """The second copy stays private; it must come back as a blank block and be counted once."""
    s = scheduler(enable_prefix_caching=True)
    twins = [state(i, 9, 3, ((9, 8), (100 + i, 1))) for i in range(2)]
    for twin in twins:
        s.add(twin)
    s.update(s.schedule())
    check(s)
    assert twins[1].has_copies and not twins[0].has_copies
    drive(s)
    check(s)
    assert s.pool.num_idle + len(s.pool.blank) == 16


def test_trap_9_a_budget_below_max_num_seqs_is_refused() -> None:
    with pytest.raises(ValueError, match="max_num_batched_tokens is 3, below max_num_seqs 4"):
        config(max_num_batched_tokens=3)


def test_trap_10_all_arrivals_of_an_instant_share_the_first_step() -> None:
    """An idle instance must not start with the first of several simultaneous requests."""
    from worlds import World

    world = World(tuple(Request(i, 1.0, 4, 2) for i in range(3)), config())
    cluster = world.run()
    assert {state.scheduled_at for state in cluster.states.values()} == {to_ticks(1.0)}
    assert {state.first_token_at for state in cluster.states.values()} != {to_ticks(1.0)}
    assert len({state.first_token_at for state in cluster.states.values()}) == 1


def test_trap_11_generated_text_is_published_at_the_end_only() -> None:
    """Inside a run nothing new can be found, else a blocked head's hit could change in it."""
    s = scheduler(enable_prefix_caching=True)
    request = state(0, 4, 9, ((9, 4),), output_content=50)
    s.add(request)
    published = []
    while plan := s.schedule():
        s.update(plan)
        published.append(len(s.pool.cached))
    assert published[:-1] == [1] * (len(published) - 1) and published[-1] == 3
    quoting = state(1, 13, 1, ((9, 4), (50, 9)))
    s.add(quoting)
    drive(s)
    assert quoting.num_cached_tokens == 12


def test_chunk_boundary_on_a_block_boundary() -> None:
    """Chunks of exactly one block: no block taken twice, none missing."""
    s = scheduler(max_num_batched_tokens=4)
    request = state(0, 16, 2)
    s.add(request)
    plans = drive(s)
    assert [p.prefills[0].num_tokens for p in plans if p.prefills] == [4, 4, 4, 4]
    assert request.num_output_tokens == 2


def test_a_request_larger_than_the_pool_is_refused_and_blocks_nobody() -> None:
    s = scheduler(4)
    giant, small = state(0, 30, 2), state(1, 4, 2)
    assert not s.add(giant) and giant.status == REJECTED
    assert s.add(small)
    drive(s)
    assert small.status == FINISHED


def test_a_request_that_just_fits_the_pool_ends() -> None:
    """16 tokens of KV in 4 blocks: 15 of prompt, 2 of output, of which the last needs no KV."""
    s = scheduler(4)
    request = state(0, 15, 2)
    assert s.add(request)
    drive(s)
    assert request.status == FINISHED


def test_idle_blocks_are_counted_once() -> None:
    """A page that is cached and idle is free and not used, in every sum."""
    s = scheduler(enable_prefix_caching=True)
    s.add(state(0, 8, 1, ((9, 8),)))
    drive(s)
    assert (s.pool.used, s.pool.available) == (0, 16)


def test_long_prompts_do_not_livelock_each_other() -> None:
    """Two prompts that fit alone but not together, in chunks: each must end."""
    s = scheduler(8, max_num_batched_tokens=8)
    requests = [state(i, 24, 5) for i in range(3)]
    for request in requests:
        s.add(request)
    drive(s, limit=200)
    assert all(request.status == FINISHED for request in requests)


@pytest.mark.parametrize("policy", ["mixed", "prefill-first", "decode-first"])
def test_steps_of_each_policy(policy: str) -> None:
    """What makes the three policies different: whether prompts and decodes share steps."""
    s = scheduler(32, policy=policy, max_num_seqs=2, max_num_batched_tokens=8)
    s.add(state(0, 4, 6))
    s.update(s.schedule())
    s.add(state(1, 12, 2))
    plans = drive(s)
    kinds = [("P" if p.prefills else "") + ("D" if p.num_decodes else "") for p in plans]
    assert (
        kinds
        == {
            "mixed": ["PD", "PD", "D", "D", "D"],
            "prefill-first": ["P", "P", "D", "D", "D", "D", "D"],
            "decode-first": ["D", "D", "D", "D", "D", "P", "P", "D"],
        }[policy]
    )


def test_preempted_requests_return_before_those_who_came_later() -> None:
    s = scheduler(6, max_num_seqs=4)
    requests = [state(i, 8, 8) for i in range(3)]
    for request in requests:
        s.add(request)
    order = []
    while plan := s.schedule():
        order += [r.id for r in plan.admitted]
        s.update(plan, PLAIN)
    assert order == [0, 1, 2, 1, 2]  # 2 gave way first, then 1; 1 returned first
