"""BlockPool: which KV blocks are blank, in use, shared, or cached and evictable.

It holds no tensors and computes no hashes, only block ids and counts, which is what makes it
testable without a GPU and fast enough to simulate. A block is in one of three places:

- *blank*: nobody's, nothing in it that could be found;
- *in use*: held by one request, or, once published under a key, by several;
- *idle*: published, held by nobody, still findable, evicted when blanks run out (LRU).

Only published blocks have keys, so what is counted, shared and evicted is named by key; a private
block is just an id in its request's table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat


class BlockPool:
    """``num_blocks`` KV blocks with shared use and LRU eviction.

    Attributes:
        blank: ids of blank blocks, used as a stack.
        cached: block id by key, for every published block.
        idle: keys of idle blocks, each with the stamp of the release that made it idle.
        shared: users beyond the first, by key; only where there are two or more.
        num_evictions: idle blocks taken for other content so far.
    """

    __slots__ = (
        "_queue",
        "_queued",
        "_stamp",
        "blank",
        "cached",
        "idle",
        "num_blocks",
        "num_evictions",
        "shared",
    )

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; a pool needs at least 1 block")
        self.num_blocks = num_blocks
        self.blank = list(range(num_blocks - 1, -1, -1))
        self.cached: dict[int, int] = {}
        self.idle: dict[int, int] = {}
        self.shared: dict[int, int] = {}
        self.num_evictions = 0
        # Released keys, oldest release first, each list from head to tail of a prefix. A key that
        # was used again meanwhile carries another stamp and is passed over. One entry per release
        # instead of one per block is what an OrderedDict could not give.
        self._queue: deque[tuple[int, list[int]]] = deque()
        self._queued = 0
        self._stamp = 0

    @property
    def available(self) -> int:
        """Blocks that can be taken now: blank ones and idle ones."""
        return len(self.blank) + len(self.idle)

    @property
    def used(self) -> int:
        """Blocks that some request holds."""
        return self.num_blocks - len(self.blank) - len(self.idle)

    def take(self, count: int) -> list[int]:
        """Take ``count`` private blocks, blank ones first, then the least recently used idle ones.

        Raises:
            RuntimeError: fewer than ``count`` are available (the scheduler must ask first).
        """
        blank = self.blank
        keep = len(blank) - count
        if keep >= 0:
            taken = blank[keep:]
            del blank[keep:]
            return taken
        if -keep > len(self.idle):
            raise RuntimeError(f"{count} blocks asked, {self.available} available")
        taken = self._evict(-keep)
        taken += blank
        blank.clear()
        return taken

    def _evict(self, count: int) -> list[int]:
        """Blocks of the ``count`` least recently used idle keys; of one release, tail first.

        Works on as many keys at once as one release left: dict methods mapped over a list are
        several times faster than a loop, and evictions are half the work on a cold trace.
        """
        queue, idle, cached = self._queue, self.idle, self.cached
        evicted: list[int] = []
        while (missing := count - len(evicted)) > 0:
            stamp, keys = queue[0]
            tail = keys[-missing:]
            del keys[-missing:]
            self._queued -= len(tail)
            stamps = list(map(idle.pop, tail, repeat(0)))
            if stamps.count(stamp) < len(tail):
                # Used again since (and idle again under a later stamp), or in use: not ours.
                idle.update((key, s) for key, s in zip(tail, stamps, strict=True) if s > stamp)
                tail = [key for key, s in zip(tail, stamps, strict=True) if s == stamp]
            evicted += map(cached.pop, reversed(tail))
            if not keys:
                queue.popleft()
        self.num_evictions += count
        return evicted

    def publish(self, keys: list[int], blocks: list[int]) -> bool:
        """Make full, computed, private blocks findable under ``keys``.

        A key that is there already keeps its block: two requests may compute the same text in one
        step, and the second copy then stays private to its request. Returns False in that case.
        """
        return list(map(self.cached.setdefault, keys, blocks)) == blocks

    def acquire(self, keys: Sequence[int]) -> list[int]:
        """Add a user to published blocks; returns their ids."""
        idle, shared = self.idle, self.shared
        for key in keys:
            if key in idle:
                del idle[key]
            else:
                shared[key] = shared.get(key, 0) + 1
        return [self.cached[key] for key in keys]

    def num_idle(self, keys: Sequence[int]) -> int:
        """How many of these keys nobody uses (acquiring them uses up capacity)."""
        return sum(map(self.idle.__contains__, keys))

    def release(self, blocks: list[int], keys: list[int], copies: bool = False) -> None:
        """Drop one user from each block; ``keys`` are those of the leading published blocks.

        Private blocks turn blank, published ones without another user idle. The tail is evicted
        before the head, so that a shared head outlives its branches. ``copies``: some of the
        leading blocks are private copies, because their key was taken when they were published.
        """
        if copies:
            cached = self.cached
            pairs = list(zip(keys, blocks, strict=False))
            self.blank += [block for key, block in pairs if cached.get(key) != block]
            self.blank += blocks[len(keys) :]
            keys = [key for key, block in pairs if cached.get(key) == block]
        else:
            self.blank += blocks[len(keys) :] if keys else blocks
        if not keys:
            return
        shared = self.shared
        kept = shared.keys() & keys if shared else ()
        if kept:
            for key in kept:
                if shared[key] == 1:
                    del shared[key]
                else:
                    shared[key] -= 1
            keys = [key for key in keys if key not in kept]
        self._stamp += 1
        self.idle.update(zip(keys, repeat(self._stamp)))
        self._queue.append((self._stamp, keys))
        self._queued += len(keys)
        if self._queued > 2 * len(self.idle) + 4096:
            self._forget_stale()

    def _forget_stale(self) -> None:
        """Drop keys that were used again since; without evictions they would pile up."""
        idle = self.idle
        fresh = [(s, [key for key in keys if idle.get(key) == s]) for s, keys in self._queue]
        self._queue = deque((stamp, keys) for stamp, keys in fresh if keys)
        self._queued = len(idle)

    def check(self, block_tables: Sequence[Sequence[int]]) -> None:
        """Assert that blank + idle + in use is the whole pool, given every block table there is."""
        users: dict[int, int] = {}
        for table in block_tables:
            for block in table:
                users[block] = users.get(block, 0) + 1
        key_of = {block: key for key, block in self.cached.items()}
        assert len(key_of) == len(self.cached), "one block is published under two keys"
        for block, count in users.items():
            expected = 1 + self.shared.get(key_of.get(block, -1), 0) if block in key_of else 1
            assert count == expected, f"block {block}: {count} users, count says {expected}"
        assert self.shared.keys() <= self.cached.keys(), "a user count without a block"
        assert self.idle.keys() <= self.cached.keys(), "an idle key that nobody can find"
        idle = [self.cached[key] for key in self.idle]
        assert set(key_of) <= set(idle) | set(users), "a blank block is published"
        places = sorted([*self.blank, *idle, *users])
        assert places == list(range(self.num_blocks)), "blocks lost or in two places"
        queued = sum(len(keys) for _, keys in self._queue)
        assert queued == self._queued, f"{queued} keys queued, count says {self._queued}"
