"""KVTiers: the engine's KV blocks in CPU memory and on disk, behind the scheduler's own question.

A scheduler asks how many tokens beyond its prefix cache are worth fetching (``TierConnector``).
What it then lets wait is loaded here between two steps, gathered and scattered by ``block_copy``.
Blocks are written when their request's prompt or answer is done; the CPU tier is an LRU store of
fixed slots, what it evicts stays on disk if there is one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from minilab.core.request import RequestState
from minilab.kernels.block_copy import gather_blocks, scatter_blocks

BLOCKS = 2
"""The dimension of a KV cache that counts its blocks: [layers, 2, blocks, size, heads, dim]."""


class Tier(Protocol):
    """A store of blocks; each is a tensor [layers, 2, block_size, kv_heads, head_dim]."""

    def __contains__(self, key: int) -> bool: ...

    def put(self, keys: Sequence[int], blocks: torch.Tensor) -> None:
        """Store blocks [layers, 2, n, block_size, kv_heads, head_dim] under their keys."""

    def get(self, key: int) -> torch.Tensor | None:
        """One block, or None if it is not there or not whole."""


class CpuTier:
    """``capacity`` blocks in CPU memory, the least recently used one making room."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"CPU tier of {capacity} blocks; give at least 1")
        self.capacity = capacity
        self._blocks: OrderedDict[int, torch.Tensor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: int) -> bool:
        return key in self._blocks

    def put(self, keys: Sequence[int], blocks: torch.Tensor) -> None:
        """See ``Tier``; the first block is the last to be evicted, so that heads outlive tails."""
        for k in reversed(range(len(keys))):
            self._blocks[keys[k]] = blocks[:, :, k].to("cpu", copy=True)
            self._blocks.move_to_end(keys[k])
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)

    def get(self, key: int) -> torch.Tensor | None:
        """See ``Tier``."""
        block = self._blocks.get(key)
        if block is not None:
            self._blocks.move_to_end(key)
        return block


Worth = Callable[[int, int], bool]
"""(tokens cached already, tokens that could be fetched) -> whether to fetch them."""


def whenever_found(cached: int, tokens: int) -> bool:
    """Fetch whatever is there."""
    return True


class KVTiers:
    """The tiers of one engine, nearest first.

    Attributes:
        loaded_tokens: by tier.
        failed_loads: blocks that were found but turned out not to be whole.
    """

    def __init__(
        self, tiers: Sequence[Tier], block_size: int, worth: Worth = whenever_found
    ) -> None:
        self.tiers = list(tiers)
        self.block_size = block_size
        self.loaded_tokens = [0] * len(self.tiers)
        self.failed_loads = 0
        self._worth = worth
        self._cache: torch.Tensor | None = None

    def attach(self, kv_cache: torch.Tensor) -> None:
        """``kv_cache``: the model's, [layers, 2, num_blocks, block_size, kv_heads, head_dim], or a
        cache of latents, [layers, 1, num_blocks, block_size, width]."""
        self._cache = kv_cache

    # -- the scheduler's questions ----------------------------------------------------------------

    def matched_tokens(self, request: RequestState, num_computed_tokens: int) -> int:
        """Tokens beyond the computed ones that some tier has."""
        first, limit = self._span(request, num_computed_tokens)
        found = 0
        for key in request.block_hashes[first:limit]:
            if not any(key in tier for tier in self.tiers):
                break
            found += 1
        return found * self.block_size

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> int:
        """Those of them that are worth fetching: all or none."""
        found = self.matched_tokens(request, num_computed_tokens)
        return found if found and self._worth(num_computed_tokens, found) else 0

    def save(self, request: RequestState) -> None:
        """Write the published blocks of ``request`` to every tier that lacks them."""
        assert self._cache is not None, "attach() first"
        keys = request.block_hashes[: request.num_published]
        for tier in self.tiers:
            missing = [k for k, key in enumerate(keys) if key not in tier]
            if missing:
                ids = torch.tensor([request.block_table[k] for k in missing])
                blocks = gather_blocks(self._cache, ids.to(self._cache.device), BLOCKS)
                tier.put([keys[k] for k in missing], blocks)

    # -- the engine's work ------------------------------------------------------------------------

    def load(self, request: RequestState) -> None:
        """Bring what was promised into the request's blocks; what cannot be read is computed.

        Sets ``num_external_tokens`` to what really came.
        """
        assert self._cache is not None, "attach() first"
        first, _ = self._span(request, request.num_computed_tokens)
        count = request.num_external_tokens // self.block_size
        blocks = []
        for key in request.block_hashes[first : first + count]:
            block = self._read(key)
            if block is None:
                self.failed_loads += 1
                break
            blocks.append(block)
        request.num_external_tokens = len(blocks) * self.block_size
        if blocks:
            staging = torch.stack(blocks, dim=BLOCKS).to(self._cache.device)
            ids = torch.tensor(request.block_table[first : first + len(blocks)])
            scatter_blocks(staging, self._cache, ids.to(self._cache.device), BLOCKS)

    def _read(self, key: int) -> torch.Tensor | None:
        for k, tier in enumerate(self.tiers):
            block = tier.get(key) if key in tier else None
            if block is not None:
                self.loaded_tokens[k] += self.block_size
                for nearer in self.tiers[:k]:
                    nearer.put([key], block.unsqueeze(BLOCKS))
                return block
        return None

    def _span(self, request: RequestState, num_computed_tokens: int) -> tuple[int, int]:
        """Blocks to look at: from the first that is not cached; the last token is computed."""
        return num_computed_tokens // self.block_size, (request.num_tokens - 1) // self.block_size
