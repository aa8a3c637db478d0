"""PromptQueue: requests whose prompt is not computed yet, queued or in chunks.

It decides which chunks join a step, and takes their blocks. A request is admitted only if the pool
can hold all of its known tokens, not just the first chunk. Otherwise long prompts get halfway in,
lose their blocks and start again (vLLM's ``scheduler_reserve_full_isl``, since vllm#37307).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from minilab.core.block_pool import BlockPool
from minilab.core.config import SchedulerConfig
from minilab.core.plan import Prefill, StepPlan
from minilab.core.prefix_index import PrefixIndex
from minilab.core.request import RUNNING, WAITING_FOR_REMOTE_KVS, RequestState


class TierConnector(Protocol):
    """What a scheduler asks of the tiers below HBM (after vLLM's KV connector)."""

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> int:
        """Tokens beyond the computed ones that are to be fetched; 0: compute them."""
        ...

    def matched_tokens(self, request: RequestState, num_computed_tokens: int) -> int:
        """Tokens beyond the computed ones that are there, worth it or not."""
        ...

    def save(self, request: RequestState) -> None:
        """The published blocks of ``request`` may be written down."""
        ...


class PromptQueue:
    """The queue and the running prompts of one scheduler.

    ``preempt(plan)`` takes the blocks of the newest running request and returns it.
    ``tiers`` says what is worth fetching from below HBM, if there is anything below;
    ``receiving`` is where requests wait for it.

    Attributes:
        waiting: the queue; preempted requests go to its front.
        prefilling: running requests whose prompt is not done, in order of admission.
    """

    __slots__ = (
        "_index",
        "_pool",
        "_preempt",
        "_receiving",
        "_size",
        "prefilling",
        "tiers",
        "waiting",
    )

    def __init__(
        self,
        config: SchedulerConfig,
        pool: BlockPool,
        index: PrefixIndex,
        preempt: Callable[[StepPlan], RequestState],
        receiving: dict[int, RequestState],
        tiers: TierConnector | None = None,
    ) -> None:
        self._size = config.block_size
        self._pool = pool
        self._index = index
        self._preempt = preempt
        self._receiving = receiving
        self.tiers = tiers
        self.waiting: deque[RequestState] = deque()
        self.prefilling: list[RequestState] = []

    def plan(self, plan: StepPlan, budget: int, slots: int) -> None:
        """Add chunks of up to ``budget`` tokens: running prompts, then up to ``slots`` new ones."""
        left = budget
        chunks: list[Prefill] = []
        if self.prefilling:
            left -= self._continue(plan, chunks, budget)
        if self.waiting and not plan.preempted:
            first = len(chunks)
            left -= self._admit(plan, chunks, left, slots)
            if len(chunks) > first:
                plan.admitted = [*plan.admitted, *[chunk[0] for chunk in chunks[first:]]]
        plan.prefills = chunks
        plan.num_prefill_tokens = budget - left

    def _continue(self, plan: StepPlan, chunks: list[Prefill], budget: int) -> int:
        """Next chunks of running prompts; returns their tokens."""
        left = budget
        for request in self.prefilling[:]:
            if request.status != RUNNING:
                continue  # lost its blocks to an older one in this very loop
            start = request.num_computed_tokens
            chunk = min(request.num_tokens - start, left)
            if chunk and self._make_room(request, start + chunk, plan):
                chunks.append(Prefill(request, start, chunk))
                left -= chunk
        return budget - left

    def allocate(self, request: RequestState) -> bool:
        """Take blocks for all known tokens of ``request``, hits included; False: no room now."""
        hits = self._index.match(request)
        if not self._has_room(request.num_tokens, hits):
            return False
        self._take(request, hits, request.num_tokens)
        return True

    def _make_room(self, request: RequestState, num_tokens: int, plan: StepPlan) -> bool:
        """Take the blocks that ``num_tokens`` tokens need, from the newest request if need be."""
        need = -(-num_tokens // self._size) - len(request.block_table)
        while need > self._pool.available:
            if self._preempt(plan) is request:
                return False
        request.block_table += self._pool.take(need)
        return True

    def _admit(self, plan: StepPlan, chunks: list[Prefill], budget: int, slots: int) -> int:
        """Admit from the head of the queue while budget, slots and blocks last; returns tokens."""
        waiting, left = self.waiting, budget
        while waiting and left and slots > 0:
            request = waiting[0]
            tokens = request.num_prompt_tokens + request.num_output_tokens
            hits = self._index.match(request)
            if not self._has_room(tokens, hits):
                break
            waiting.popleft()
            start = len(hits) * self._size
            if self.tiers is not None and self._begin_load(plan, request, hits):
                continue
            chunk = min(tokens - start, left)
            self._take(request, hits, start + chunk)
            request.status = RUNNING
            self.prefilling.append(request)
            chunks.append(Prefill(request, start, chunk))
            left -= chunk
            slots -= 1
        return budget - left

    def _begin_load(self, plan: StepPlan, request: RequestState, hits: list[int]) -> bool:
        """Let ``request`` wait for KV from a tier, if that is worth it; its blocks are taken now.

        It holds no running slot meanwhile, and those behind it go on.
        """
        assert self.tiers is not None
        start = len(hits) * self._size
        fetched = self.tiers.get_num_new_matched_tokens(request, start)
        if not fetched:
            return False
        self._take(request, hits, request.num_tokens)
        request.num_external_tokens = fetched
        request.status = WAITING_FOR_REMOTE_KVS
        self._receiving[request.id] = request
        plan.loads = [*plan.loads, request]
        return True

    def _has_room(self, tokens: int, hits: list[int]) -> bool:
        """Whether ``tokens`` tokens fit, ``hits`` being there already.

        Acquiring an idle hit uses up a block that could have been evicted, so it counts too.
        """
        pool = self._pool
        fresh = -(-tokens // self._size) - len(hits)
        return fresh + (pool.count_idle(hits) if hits else 0) <= pool.available

    def _take(self, request: RequestState, hits: list[int], tokens: int) -> None:
        """Give ``request`` its hits and blocks for ``tokens`` tokens; the hits count as computed.

        Hits are acquired before anything is taken, else taking could evict them.
        """
        found = self._pool.acquire(hits) if hits else hits
        request.block_table = found + self._pool.take(-(-tokens // self._size) - len(hits))
        request.num_published = len(hits)
        request.num_computed_tokens = start = len(hits) * self._size
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = start
