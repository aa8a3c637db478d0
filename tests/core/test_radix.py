"""The radix tree: the same hits as the hash chain while nothing is evicted, then leaves first."""

from __future__ import annotations

import random
from typing import Any

import pytest
from driving import check, config, drive, state
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.core.block_hash import SegmentHasher
from minilab.core.radix_tree import RadixTree, pages, root_of
from minilab.core.scheduler import Scheduler
from minilab.facts.request import Segment

TEXTS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=5),
    min_size=1,
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.sampled_from([1, 2, 4, 8]), st.integers(0, 99))
def test_both_indexes_find_the_same_while_nothing_is_evicted(
    texts: list[list[Segment]], size: int, seed: int
) -> None:
    """Any texts, cut anyhow, salted or not: equal hits and equal steps, block by block."""
    rng = random.Random(seed)
    rows = [
        (sum(n for _, n in text), rng.randint(1, 9), tuple(text), rng.choice([None, "a", ""]))
        for text in texts
    ]
    seen = {}
    for name in ("hash-chain", "radix"):
        limits = config(
            4000, block_size=size, enable_prefix_caching=True, prefix_index=name, max_num_seqs=3
        )
        scheduler = Scheduler(limits)
        requests = []
        for i, (tokens, output, text, salt) in enumerate(rows):
            request = state(i, tokens, output, text, cache_salt=salt, output_content=50 + i % 2)
            requests.append(request)
            scheduler.add(request)
        plans = drive(scheduler)
        hits = [request.num_cached_tokens for request in requests]
        seen[name] = (hits, [(p.num_prefill_tokens, p.num_decodes) for p in plans])
        assert not scheduler.pool.num_evictions
    assert seen["radix"] == seen["hash-chain"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 24))
def test_a_tiny_pool_loses_no_block_and_no_token(seed: int, blocks: int) -> None:
    """Eviction, preemption, copies and aborts under pressure; ``check`` runs after every step."""
    rng = random.Random(seed)
    limits = config(blocks, enable_prefix_caching=True, prefix_index="radix")
    scheduler = Scheduler(limits)
    requests = []
    for i in range(12):
        prompt = rng.randint(1, 16)
        shared = rng.randint(0, prompt)
        text = tuple(s for s in ((rng.randint(0, 1), shared), (9 + i, prompt - shared)) if s[1])
        request = state(i, prompt, rng.randint(1, 8), text)
        if scheduler.add(request):
            requests.append(request)
    for _ in range(rng.randint(0, 3)):
        if plan := scheduler.schedule():
            scheduler.update(plan)
            check(scheduler)
    victim = rng.choice(requests) if requests else None
    if victim and victim.num_output_tokens < victim.max_tokens and victim.block_table:
        scheduler.abort(victim)
        check(scheduler)
    drive(scheduler)
    assert scheduler.pool.used == 0
    assert all(r is victim or r.num_output_tokens == r.max_tokens for r in requests)


def spec(*text: Segment, **keys: Any) -> Any:
    return state(0, sum(n for _, n in text), 1, text, **keys).request


def test_an_edge_splits_where_two_prompts_part() -> None:
    tree = RadixTree(4)
    tree.insert_prompt(spec((0, 16), (1, 8)))
    tree.insert_prompt(spec((0, 16), (2, 8)))
    assert tree.num_pages == 4 + 2 + 2
    assert tree.match_tokens(spec((0, 12), (3, 8))) == 12
    assert tree.match_tokens(spec((0, 16), (2, 40))) == 24
    assert tree.match_tokens(spec((2, 8))) == 0, "the same text elsewhere is another path"


def test_leaves_go_first_and_the_oldest_of_them() -> None:
    """A head that goes before its branches leaves text that no prompt can reach."""
    tree = RadixTree(1)
    for branch in (1, 2, 3):
        tree.insert_prompt(spec((0, 2), (branch, 2)))
    tree.match_tokens(spec((0, 2), (1, 2)))  # branch 1 is used again: 2 is now the oldest
    assert len(tree.evict(3, ())) == 3
    left = [tree.match_tokens(spec((0, 2), (b, 2))) for b in (1, 2, 3)]
    assert left == [4, 2, 3], "2 is gone, 3 lost its tail"
    tree.evict(3, ())
    assert tree.match_tokens(spec((0, 2), (1, 2))) == 2
    assert len(tree.evict(99, ())) == 2, "the head goes last"
    assert tree.num_pages == 0


def test_what_is_in_use_stays_with_all_that_leads_to_it() -> None:
    tree = RadixTree(1)
    path = pages(spec((0, 2), (1, 2)), 4, 1)
    keys = tree.insert(root_of(spec((0, 2))), path)
    assert tree.evict(9, {keys[2]}) == [keys[3]]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_pages_are_cut_where_blocks_are(size: int) -> None:
    """Two texts have equal pages exactly where the hash chain says so."""
    a = state(1, 15, 8, ((1, 5), (2, 10)), output_content=4)
    b = state(2, 20, 8, ((1, 5), (2, 10), (4, 5)), output_content=3)
    hasher = SegmentHasher(size)
    hasher.extend(a, 20)
    hasher.extend(b, 20)
    same = [x == y for x, y in zip(a.block_hashes, b.block_hashes, strict=True)]
    ours = [
        x == y
        for x, y in zip(pages(a.request, 20, size, 1), pages(b.request, 20, size, 2), strict=True)
    ]
    assert ours == same and all(same)
