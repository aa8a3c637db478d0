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


class BlockPool:
    """``num_blocks`` KV blocks with shared use and LRU eviction.

    Attributes:
        blank: ids of blank blocks, used as a stack.
        cached: block id by key, for every published block.
        users: requests that hold a published block, by key; idle blocks are not in it.
        num_idle: published blocks that nobody holds.
        num_evictions: idle blocks taken for other content so far.
    """

    __slots__ = (
        "_queue",
        "_queued",
        "_stale",
        "blank",
        "cached",
        "num_blocks",
        "num_evictions",
        "num_idle",
        "users",
    )

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; a pool needs at least 1 block")
        self.num_blocks = num_blocks
        self.blank = list(range(num_blocks - 1, -1, -1))
        self.cached: dict[int, int] = {}
        self.users: dict[int, int] = {}
        self.num_idle = 0
        self.num_evictions = 0
        # The LRU order: keys as they became idle, one list per release (head to tail of a prefix),
        # oldest first. Using an idle key again does not search for its entry: ``_stale`` counts how
        # many of the oldest entries of a key are to be passed over. So going idle costs one append
        # per release and coming back one count, where an OrderedDict pays per block.
        self._queue: deque[list[int]] = deque()
        self._queued = 0
        self._stale: dict[int, int] = {}

    @property
    def available(self) -> int:
        """Blocks that can be taken now: blank ones and idle ones."""
        return len(self.blank) + self.num_idle

    @property
    def used(self) -> int:
        """Blocks that some request holds."""
        return self.num_blocks - len(self.blank) - self.num_idle

    @property
    def num_cached(self) -> int:
        """Blocks that can be found by content."""
        return len(self.cached)

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
        if -keep > self.num_idle:
            raise RuntimeError(f"{count} blocks asked, {self.available} available")
        taken = self._evict(-keep)
        taken += blank
        blank.clear()
        return taken

    def _evict(self, count: int) -> list[int]:
        """Blocks of the ``count`` least recently used idle keys; of one release, tail first."""
        queue, stale = self._queue, self._stale
        evicted: list[int] = []
        while (missing := count - len(evicted)) > 0:
            keys = queue[0]
            tail = keys[: -missing - 1 : -1]
            del keys[-missing:]
            self._queued -= len(tail)
            if not keys:
                queue.popleft()
            if stale and not stale.keys().isdisjoint(tail):
                tail = self._without_stale(tail)
            evicted += map(self.cached.pop, tail)
        self.num_idle -= count
        self.num_evictions += count
        return evicted

    def _without_stale(self, keys: list[int]) -> list[int]:
        """The keys whose entries count; each stale one is used up by being passed over."""
        stale = self._stale
        fresh: list[int] = []
        for key in keys:
            count = stale.get(key)
            if count is None:
                fresh.append(key)
            elif count == 1:
                del stale[key]
            else:
                stale[key] = count - 1
        return fresh

    def publish(self, keys: list[int], blocks: list[int]) -> bool:
        """Make full, computed, private blocks findable under ``keys``, with one user each.

        A key that is there already keeps its block: two requests may compute the same text in one
        step, and the second copy then stays private to its request. Returns False in that case.
        """
        held = list(map(self.cached.setdefault, keys, blocks))
        accepted = held == blocks
        if not accepted:
            keys = [k for k, mine, there in zip(keys, blocks, held, strict=True) if mine == there]
        users = self.users
        for key in keys:
            users[key] = 1
        return accepted

    def acquire(self, keys: Sequence[int]) -> list[int]:
        """Add a user to published blocks; returns their ids."""
        users, stale = self.users, self._stale
        for key in keys:
            count = users.get(key)
            if count is None:
                users[key] = 1
                stale[key] = stale.get(key, 0) + 1
                self.num_idle -= 1
            else:
                users[key] = count + 1
        return [self.cached[key] for key in keys]

    def count_idle(self, keys: Sequence[int]) -> int:
        """How many of these published keys nobody uses (acquiring them uses up capacity)."""
        return len(keys) - sum(map(self.users.__contains__, keys))

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
        users = self.users
        counts = list(map(users.pop, keys))
        if counts.count(1) != len(keys):
            for key, count in zip(keys, counts, strict=True):
                if count > 1:
                    users[key] = count - 1
            keys = [key for key, count in zip(keys, counts, strict=True) if count == 1]
        self.num_idle += len(keys)
        self._queue.append(keys)
        self._queued += len(keys)
        if self._queued > 2 * self.num_idle + 4096:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Remove stale entries from the queue; without evictions they would pile up."""
        fresh = (self._without_stale(keys) for keys in self._queue)
        self._queue = deque(keys for keys in fresh if keys)
        self._queued = self.num_idle

    def check(self, block_tables: Sequence[Sequence[int]]) -> None:
        """Assert that blank + idle + in use is the whole pool, given every block table there is."""
        holders: dict[int, int] = {}
        for table in block_tables:
            for block in table:
                holders[block] = holders.get(block, 0) + 1
        key_of = {block: key for key, block in self.cached.items()}
        assert len(key_of) == len(self.cached), "one block is published under two keys"
        for block, count in holders.items():
            expected = self.users.get(key_of[block]) if block in key_of else 1
            assert count == expected, f"block {block}: {count} users, count says {expected}"
        idle = [block for key, block in self.cached.items() if key not in self.users]
        assert self.num_idle == len(idle), f"{len(idle)} idle, count says {self.num_idle}"
        assert self.users.keys() <= self.cached.keys(), "a user count without a block"
        places = sorted([*self.blank, *idle, *holders])
        assert places == list(range(self.num_blocks)), "blocks lost or in two places"
        self._check_order(idle)

    def _check_order(self, idle: list[int]) -> None:
        """Assert that every idle block has its place in the LRU order."""
        queued = sum(map(len, self._queue))
        assert queued == self._queued == len(idle) + sum(self._stale.values()), "LRU order broken"
