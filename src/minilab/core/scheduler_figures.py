"""SchedulerFigures: what others may ask of a scheduler, between two steps or inside a run.

Executors, routers and monitors ask; the answers are read off the queue, the batch and the pool, and
no plan changes by them.
"""

from __future__ import annotations

from collections import deque

from minilab.core.block_pool import BlockPool
from minilab.core.config import SchedulerConfig
from minilab.core.decode_batch import DecodeBatch
from minilab.core.prefix_index import PrefixIndex
from minilab.core.prompt_queue import TierConnector
from minilab.core.remote_kv import RemoteKV
from minilab.core.request import RequestState


class SchedulerFigures:
    """The questions; ``Scheduler`` owns what they are read from."""

    config: SchedulerConfig
    pool: BlockPool
    index: PrefixIndex
    batch: DecodeBatch
    remote: RemoteKV
    tiers: TierConnector | None
    waiting: deque[RequestState]
    prefilling: list[RequestState]

    def fits(self, request: RequestState) -> bool:
        """Whether the pool could hold ``request`` to its end if it were alone."""
        longest = request.num_prompt_tokens + request.max_tokens - 1
        return longest <= self.config.num_blocks * self.config.block_size

    @property
    def num_running(self) -> int:
        """Requests with a running slot."""
        return len(self.batch.requests) + len(self.prefilling)

    @property
    def free_slots(self) -> int:
        """Running slots left."""
        return self.config.max_num_seqs - len(self.batch.requests) - len(self.prefilling)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, those with arrived KV included."""
        return len(self.waiting) + len(self.remote.ready)

    @property
    def accepts_now(self) -> bool:
        """Whether a request that arrives now could change the next step.

        With a queue or full slots it lines up behind what is stuck already.
        """
        if self.waiting or not self.free_slots:
            return False
        return not (self.config.policy == "decode-first" and self.batch.requests)

    def computed(self, request: RequestState) -> int:
        """Tokens of ``request`` whose KV is in the pool."""
        if request.decoding:
            return request.offset + self.batch.clock
        return request.num_computed_tokens

    @property
    def num_decoding(self) -> int:
        """Requests whose stream has begun."""
        return len(self.batch.requests)

    def pending_tokens(self) -> int:
        """Known tokens that no step has computed, less what routers expect to find cached."""
        if not self.waiting and not self.prefilling:
            return 0
        pending = 0
        for request in self.waiting:
            pending += request.num_tokens - request.expected_hit
        for request in self.prefilling:
            pending += request.num_tokens - request.num_computed_tokens
        return pending

    def tokens_in_flight(self, steps_over: int = 0) -> int:
        """KV tokens of running requests, ``steps_over`` steps into the current run."""
        batch = self.batch
        tokens = batch.kv_tokens + steps_over * len(batch.requests)
        for request in self.prefilling:
            tokens += request.num_computed_tokens
        return tokens

    def blocks_in_use(self, steps_begun: int = 1) -> int:
        """KV blocks in use when ``steps_begun`` steps of the current run have begun."""
        return self.pool.used + self.batch.growth(steps_begun)

    def match(self, request: RequestState, steps_begun: int = 1) -> int:
        """Tokens of ``request`` that the prefix index could serve at that moment.

        The blocks of steps that have begun are taken first, for they may evict what would match.
        """
        if steps_begun > self.batch.grown:
            self.batch.grow(steps_begun)
        found = self.index.count(request) * self.index.block_size
        if self.tiers is not None:
            found += self.tiers.matched_tokens(request, found)
        return found
