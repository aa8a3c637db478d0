"""PrefixIndex: the longest cached prefix of a request (vLLM's hash chain).

The hash of a block covers its text *and everything before it*, so a block can only match where the
whole prefix matches, and the longest cached prefix is found by walking hashes from the start.
"""

from __future__ import annotations

from minilab.core.block_hash import BlockHasher
from minilab.core.block_pool import BlockPool
from minilab.core.request import RequestState


class PrefixIndex:
    """Finds and publishes the blocks of requests in one pool.

    ``enabled`` False turns it into an index that never finds and never keeps anything.
    """

    __slots__ = ("_hasher", "block_size", "enabled", "pool")

    def __init__(
        self, pool: BlockPool, hasher: BlockHasher, block_size: int, enabled: bool
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enabled = enabled
        self._hasher = hasher

    def match(self, request: RequestState) -> list[int]:
        """Keys of the leading blocks that are cached.

        Never all tokens of the request: the last one must be computed, for its logits.
        """
        if not self.enabled:
            return []
        keys, cached = request.block_hashes, self.pool.cached
        if len(keys) < request.num_prompt_tokens // self.block_size:
            self._hasher.extend(request, request.num_prompt_tokens)
        limit = min(len(keys), (request.num_tokens - 1) // self.block_size)
        found = 0
        for key in keys:
            if key not in cached:
                break
            found += 1
        return keys[: min(found, limit)]

    def count(self, request: RequestState) -> int:
        """How many leading blocks ``match`` would find."""
        if not self.enabled:
            return 0
        keys, cached = request.block_hashes, self.pool.cached
        if len(keys) < request.num_prompt_tokens // self.block_size:
            self._hasher.extend(request, request.num_prompt_tokens)
        for found, key in enumerate(keys):
            if key not in cached:
                return found
        return min(len(keys), (request.num_tokens - 1) // self.block_size)

    def publish(self, request: RequestState) -> None:
        """Publish the full blocks computed since the last call, as far as hashes are known."""
        first, keys = request.num_published, request.block_hashes
        end = min(request.num_computed_tokens // self.block_size, len(keys))
        if end > first:
            if not self.pool.publish(keys[first:end], request.block_table[first:end]):
                request.has_copies = True
            request.num_published = end

    def publish_generated(self, request: RequestState) -> None:
        """The same, with the hashes of generated text worked out first."""
        if self.enabled:
            self._hasher.extend(request, request.num_computed_tokens)
            self.publish(request)

    def release(self, request: RequestState) -> None:
        """Give the blocks of ``request`` back; what is published stays findable."""
        self._give_back(request, request.block_hashes[: request.num_published])

    def finish(self, request: RequestState) -> None:
        """``release`` for good: the request's own list of hashes goes to the pool, uncopied."""
        keys = request.block_hashes
        request.block_hashes = []
        del keys[request.num_published :]
        self._give_back(request, keys)

    def _give_back(self, request: RequestState, keys: list[int]) -> None:
        self.pool.release(request.block_table, keys, request.has_copies)
        request.block_table = []
        request.num_computed_tokens = request.num_published = 0
        request.has_copies = False
