"""RadixIndex: the longest cached prefix by walking a radix tree (SGLang), and its block pool.

To a scheduler it is a ``PrefixIndex``: it names blocks by key. The keys come from the tree, and
what is evicted is the tree's choice. Whole text is compared, never a hash of it, so two texts
cannot be taken for one another. Of two copies of a block the later one is dropped at once: a copy
kept private would leave a path in the tree that nobody holds and nobody can evict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minilab.core.block_hash import BlockHasher
from minilab.core.block_pool import BlockPool
from minilab.core.prefix_index import PrefixIndex
from minilab.core.radix_tree import RadixTree, pages, root_of
from minilab.core.request import RequestState


class RadixPool(BlockPool):
    """A block pool that evicts what a radix tree lets go: leaves first, least recently used."""

    __slots__ = ("_tree",)

    def __init__(self, num_blocks: int, tree: RadixTree) -> None:
        super().__init__(num_blocks)
        self._tree = tree

    def _evict(self, count: int) -> list[int]:
        keys = self._tree.evict(count, self.users)
        self.num_idle -= count
        self.num_evictions += count
        return [self.cached.pop(key) for key in keys]

    def acquire(self, keys: Sequence[int]) -> list[int]:
        """Add a user to published blocks; returns their ids."""
        users = self.users
        self.num_idle -= self.count_idle(keys)
        for key in keys:
            users[key] = users.get(key, 0) + 1
        return [self.cached[key] for key in keys]

    def release(self, blocks: list[int], keys: list[int], copies: bool = False) -> None:
        """Drop one user from each block; see ``BlockPool.release``."""
        users = self.users
        self.blank += blocks[len(keys) :]
        for key in keys:
            users[key] -= 1
            if not users[key]:
                del users[key]
                self.num_idle += 1

    def _check_order(self, idle: list[int]) -> None:
        """Assert that the tree holds exactly the published pages."""
        assert self._tree.num_pages == len(self.cached), "tree and pool disagree"


class RadixIndex(PrefixIndex):
    """Finds and publishes the blocks of requests in one pool, by their text."""

    __slots__ = ("_tree",)

    def __init__(self, pool: RadixPool, tree: RadixTree, block_size: int, enabled: bool) -> None:
        super().__init__(pool, _NoHasher(), block_size, enabled)
        self._tree = tree

    def match(self, request: RequestState) -> list[int]:
        """Keys of the leading blocks that are cached; never all tokens of the request."""
        if not self.enabled:
            return []
        limit = (request.num_tokens - 1) // self.block_size
        spec: Any = request.request
        path = self._pages(request, request.num_prompt_tokens)[:limit]
        found = self._tree.match(root_of(spec), path)
        request.block_hashes = found[:]
        return found

    def count(self, request: RequestState) -> int:
        """How many leading blocks ``match`` would find."""
        return len(self.match(request))

    def publish(self, request: RequestState) -> None:
        """Publish the full blocks computed since the last call, as far as they are prompt."""
        self._publish(request, min(request.num_computed_tokens, request.num_prompt_tokens))

    def publish_generated(self, request: RequestState) -> None:
        """The same, with the blocks of generated text."""
        if self.enabled:
            self._publish(request, request.num_computed_tokens)

    def _publish(self, request: RequestState, num_tokens: int) -> None:
        path = self._pages(request, num_tokens)
        first, end = request.num_published, len(path)
        if end <= first:
            return
        spec: Any = request.request
        request.block_hashes = keys = self._tree.insert(root_of(spec), path)
        table, pool = request.block_table, self.pool
        for k in range(first, end):
            if keys[k] in pool.cached:  # somebody computed the same text meanwhile: share theirs
                pool.blank.append(table[k])
                table[k : k + 1] = pool.acquire([keys[k]])
            else:
                pool.publish([keys[k]], [table[k]])
        request.num_published = end

    def _pages(self, request: RequestState, num_tokens: int) -> list[Any]:
        return pages(request.request, num_tokens, self.block_size, request.id)


class _NoHasher(BlockHasher):
    """The tree compares pages themselves."""

    def extend(self, request: RequestState, num_tokens: int) -> None:
        raise NotImplementedError("a radix tree needs no hashes")
