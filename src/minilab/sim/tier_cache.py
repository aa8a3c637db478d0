"""TierCache: one instance's tiers on the simulated clock, as its scheduler sees them.

It answers how many tokens beyond the prefix cache's are worth fetching, and takes the blocks that a
request leaves behind. Each tier has one channel in and one out per instance, used in turn, so loads
queue behind loads and writes behind writes; a write never slows a load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minilab.core.request import RequestState
from minilab.core.tiers import Place, Rule, TierSpec, TierStore, find
from minilab.facts.ticks import TICKS_PER_SECOND, to_ticks


class TierCache:
    """The tiers of one instance.

    Args:
        specs: nearest first.
        stores: the tiers' contents, in the same order; shared ones belong to several instances.
        block_size: tokens per block.
        block_bytes: bytes per block, of all layers and all ranks.
        prefill_seconds: (first token, tokens) -> seconds to compute them.
        rule: how many of the blocks found to fetch.

    Attributes:
        clock: gives the time in ticks; the cluster sets it.
        loaded_tokens, stored_blocks: by tier.
        skipped_tokens: found, but left to be computed because that was faster.
    """

    def __init__(
        self,
        specs: Sequence[TierSpec],
        stores: Sequence[TierStore],
        block_size: int,
        block_bytes: float,
        prefill_seconds: Callable[[int, int], float],
        rule: Rule,
    ) -> None:
        self.specs, self.stores = tuple(specs), tuple(stores)
        self._size, self._bytes = block_size, block_bytes
        self._prefill, self._rule = prefill_seconds, rule
        self.clock: Callable[[], int] = lambda: 0
        self.loaded_tokens = [0] * len(specs)
        self.stored_blocks = [0] * len(specs)
        self.skipped_tokens = 0
        self._read_free = [0] * len(specs)
        self._write_free = [0] * len(specs)
        self._chosen: dict[int, list[Place]] = {}

    # -- what a scheduler asks --------------------------------------------------------------------

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> int:
        """Tokens to fetch beyond those that the prefix cache has (vLLM's verb).

        Never the last token of the request: it is computed, for its logits.
        """
        first = num_computed_tokens // self._size
        limit = (request.num_tokens - 1) // self._size
        now = self.clock()
        places = find(self.stores, request.block_hashes[first:limit], now)
        if not places:
            return 0
        fetch = self._fetch_seconds(places, now)
        compute = [
            self._prefill(num_computed_tokens, count * self._size)
            for count in range(1, len(places) + 1)
        ]
        count = self._rule(fetch, compute)
        self.skipped_tokens += (len(places) - count) * self._size
        if count:
            self._chosen[request.id] = places[:count]
        return count * self._size

    def matched_tokens(self, request: RequestState, num_computed_tokens: int) -> int:
        """Tokens that this instance's own tiers could serve, for a router; shared ones help all."""
        own = [s for s, spec in zip(self.stores, self.specs, strict=True) if not spec.shared]
        first = num_computed_tokens // self._size
        limit = (request.num_tokens - 1) // self._size
        return len(find(own, request.block_hashes[first:limit], self.clock())) * self._size

    def save(self, request: RequestState) -> None:
        """Write the published blocks of ``request`` that the first tier lacks, unhurried."""
        self._write(request.block_hashes[: request.num_published])

    # -- what a cluster asks ----------------------------------------------------------------------

    def start_load(self, request: RequestState) -> int:
        """Begin the load that was chosen for ``request``; returns the tick at which it is over."""
        places, now = self._chosen.pop(request.id), self.clock()
        end = now
        for tier, spec in enumerate(self.specs):
            count = sum(place.tier == tier for place in places)
            if not count:
                continue
            busy = to_ticks(spec.latency + count * self._bytes / spec.read)
            self._read_free[tier] = max(now, self._read_free[tier]) + busy
            end = max(end, self._read_free[tier])
            self.loaded_tokens[tier] += count * self._size
        for place in reversed(places):
            if place.key in self.stores[place.tier]:
                self.stores[place.tier].touch(place.key)
        self._write([place.key for place in places if place.tier])
        return end

    def stats(self) -> dict[str, Any]:
        """Plain JSON values, by tier."""
        return {
            spec.name: {
                "capacity_blocks": store.capacity,
                "blocks": len(store),
                "loaded_tokens": loaded,
                "stored_blocks": stored,
            }
            for spec, store, loaded, stored in zip(
                self.specs, self.stores, self.loaded_tokens, self.stored_blocks, strict=True
            )
        } | {"skipped_tokens": self.skipped_tokens}

    # -- time -------------------------------------------------------------------------------------

    def _fetch_seconds(self, places: Sequence[Place], now: int) -> list[float]:
        """Seconds from now until the first 1, 2, ... of the blocks are here, channels' queues
        included."""
        wait = [max(0, free - now) / TICKS_PER_SECOND for free in self._read_free]
        ends = [w + spec.latency for w, spec in zip(wait, self.specs, strict=True)]
        seconds, last = [], 0.0
        for place in places:
            ends[place.tier] += self._bytes / self.specs[place.tier].read
            last = max(last, ends[place.tier])
            seconds.append(last)
        return seconds

    def _write(self, keys: Sequence[int], tier: int = 0) -> None:
        """Put blocks into a tier, tail first, so that a head outlives its branches; what it evicts
        sinks to the next one."""
        if tier == len(self.specs) or not keys:
            return
        store, spec, now = self.stores[tier], self.specs[tier], self.clock()
        step = self._bytes / spec.write
        sinking: list[int] = []
        fresh = [key for key in keys if key not in store]
        free = max(now, self._write_free[tier])
        if fresh:
            for count, key in enumerate(fresh, 1):
                sinking += store.put(key, free + to_ticks(spec.latency + count * step))
            self._write_free[tier] = free + to_ticks(spec.latency + len(fresh) * step)
            self.stored_blocks[tier] += len(fresh)
        for key in reversed(keys):
            if key in store:
                store.touch(key)
        self._write([key for key in reversed(sinking) if key not in store], tier + 1)
