"""The pool against a plain model of it, under random use."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minilab.core.block_pool import BlockPool

BLOCKS = 12


class PoolMachine(RuleBasedStateMachine):
    """Holders take, publish, acquire and release; an OrderedDict keeps the expected LRU order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.holders: list[tuple[list[int], list[int], bool]] = []
        self.idle: OrderedDict[int, None] = OrderedDict()
        self.users: dict[int, int] = {}
        self.next_key = 0

    def evictions(self, count: int) -> None:
        for _ in range(count - len(self.pool.blank)):
            self.idle.popitem(last=False)

    @rule(count=st.integers(1, 6), share=st.integers(0, 6), reuse=st.booleans())
    def start(self, count: int, share: int, reuse: bool) -> None:
        """A request: matches a cached chain if asked to, takes the rest, publishes some of it."""
        chain: list[int] = []
        if reuse and self.pool.cached:
            chain = sorted(self.pool.cached)[: min(share, count)]
        fresh = count - len(chain)
        if fresh + self.pool.count_idle(chain) > self.pool.available:
            return
        blocks = self.pool.acquire(chain)
        for key in chain:
            self.users[key] = self.users.get(key, 0) + 1
            self.idle.pop(key, None)
        self.evictions(fresh)
        blocks += self.pool.take(fresh)
        keys = list(range(self.next_key, self.next_key + min(share, fresh)))
        self.next_key += len(keys)
        accepted = self.pool.publish(keys, blocks[len(chain) : len(chain) + len(keys)])
        assert accepted
        for key in keys:
            self.users[key] = 1
        self.holders.append((blocks, chain + keys, False))

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 100), count=st.integers(1, 3))
    def publish_what_is_there(self, which: int, count: int) -> None:
        """A second copy of a published text stays private."""
        if self.pool.available < count or not self.pool.cached:
            return
        self.evictions(count)
        blocks = self.pool.take(count)
        keys = sorted(self.pool.cached)[:count]
        if len(keys) == count:
            assert not self.pool.publish(keys, blocks)
            self.holders.append((blocks, keys, True))
        else:
            self.holders.append((blocks, [], False))

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 100))
    def stop(self, which: int) -> None:
        blocks, keys, copies = self.holders.pop(which % len(self.holders))
        self.pool.release(blocks, list(keys), copies)
        if copies:
            return
        for key in reversed(keys):
            self.users[key] -= 1
            if not self.users[key]:
                self.idle[key] = None

    @invariant()
    def adds_up(self) -> None:
        self.pool.check([blocks for blocks, _, _ in self.holders])
        assert self.pool.cached.keys() - self.pool.users.keys() == self.idle.keys()
        assert self.pool.used + self.pool.available == BLOCKS


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase


def test_the_tail_is_evicted_before_the_head_and_old_before_new() -> None:
    pool = BlockPool(4)
    for keys in ([1, 2], [3, 4]):
        blocks = pool.take(2)
        pool.publish(keys, blocks)
        pool.release(blocks, keys)
    order = []
    for _ in range(4):
        before = set(pool.cached)
        pool.take(1)
        order += before - set(pool.cached)
    assert order == [2, 1, 4, 3]


def test_use_refreshes() -> None:
    pool = BlockPool(4)
    for keys in ([1, 2], [3, 4]):
        blocks = pool.take(2)
        pool.publish(keys, blocks)
        pool.release(blocks, keys)
    pool.release(pool.acquire([1]), [1])
    pool.take(3)
    assert list(pool.cached) == [1]


def test_stale_entries_do_not_pile_up_without_evictions() -> None:
    """A long-lived server that reuses one prefix must not grow a queue for ever."""
    pool = BlockPool(8)
    blocks = pool.take(4)
    pool.publish([1, 2, 3, 4], blocks)
    for _ in range(5000):
        pool.release(blocks, [1, 2, 3, 4])
        blocks = pool.acquire([1, 2, 3, 4])
    pool.check([blocks])
    assert sum(map(len, pool._queue)) < 5000


def test_taking_more_than_there_is_changes_nothing() -> None:
    pool = BlockPool(2)
    with pytest.raises(RuntimeError, match="3 blocks asked, 2 available"):
        pool.take(3)
    assert pool.available == 2
    with pytest.raises(ValueError, match="num_blocks is 0"):
        BlockPool(0)
