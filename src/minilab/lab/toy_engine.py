"""ToyEngine: a whole serving engine on two screens, with tokens that can be checked.

Keys and values in pages, requests that join and leave between steps, prompts in chunks. It is for
stepping through (lab 00), not for speed; each part is a floor of the package in small:

    TinyModel (toy_model)   engine and kernels (the model, paged attention)
    PagedKV, free           core.block_pool, kernels.kv_write
    slot                    the block table of core.request and the kernels
    new_blocks, victims     core.decode_batch, core.scheduler (blocks of a step, preemption)
    chunks, schedule        core.policies, core.prompt_queue (the token budget)
    step, run               core.instance, driven by sim (a clock) or engine (torch)
    log                     facts.runlog
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from minilab.lab.toy_model import TinyModel, generate

__all__ = ["PagedKV", "TinyModel", "ToyEngine", "ToyRequest", "generate"]


@dataclass(eq=False)
class ToyRequest:
    """One request: its tokens (prompt and output), how many have KV, and where that KV lies."""

    id: int
    prompt_tokens: int
    max_tokens: int
    tokens: list[int]
    computed: int = 0
    block_table: list[int] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        """Tokens that came out."""
        return self.tokens[self.prompt_tokens :]

    @property
    def decoding(self) -> bool:
        """One token is left to compute: the last one that came out."""
        return len(self.tokens) > self.prompt_tokens and self.computed == len(self.tokens) - 1


class PagedKV:
    """Keys and values of ``num_blocks`` blocks, float64[num_blocks * block_size, width] each."""

    def __init__(self, num_blocks: int, block_size: int, width: int) -> None:
        self.keys = np.full((num_blocks * block_size, width), np.nan)  # unwritten: poison
        self.values = self.keys.copy()
        self.free = list(range(num_blocks - 1, -1, -1))


class ToyEngine:
    """Continuous batching with chunked prefill over a paged cache; ``run`` serves what was added.

    ``budget``: tokens computed in one step; ``max_num_seqs``: requests running at once. The four
    static methods are its decisions, and the exercises of lab 00: replace them in a subclass.
    """

    def __init__(
        self,
        model: TinyModel,
        num_blocks: int = 16,
        block_size: int = 4,
        budget: int = 16,
        max_num_seqs: int = 4,
    ) -> None:
        self.model = model
        self.block_size, self.budget, self.max_num_seqs = block_size, budget, max_num_seqs
        self.num_blocks = num_blocks
        self.kv = PagedKV(num_blocks, block_size, model.width)
        self.waiting: deque[ToyRequest] = deque()
        self.running: list[ToyRequest] = []
        self.done: list[ToyRequest] = []
        self.log: list[str] = []

    # -- the four decisions ---------------------------------------------------------------------

    @staticmethod
    def slot(block_table: Sequence[int], position: int, block_size: int) -> int:
        """Row of the cache that holds the token at ``position``."""
        block, offset = divmod(position, block_size)
        return block_table[block] * block_size + offset

    @staticmethod
    def new_blocks(requests: Sequence[tuple[int, int, int]], block_size: int) -> int:
        """Blocks to take for a step; each request is (tokens computed, new tokens, blocks held)."""
        return sum(-(-(done + new) // block_size) - held for done, new, held in requests)

    @staticmethod
    def chunks(budget: int, decodes: int, prompts: Sequence[int]) -> list[int]:
        """Tokens that each prompt may compute in this step; ``prompts``: tokens left, in order."""
        left, found = budget - decodes, []
        for rest in prompts:
            found.append(min(rest, left))
            left -= found[-1]
        return found

    @staticmethod
    def victims(running: Sequence[tuple[int, int, int]], free: int) -> list[int]:
        """Ids that lose their blocks, in order, so that the others get theirs.

        ``running``: (id, blocks held, blocks wanted) in order of admission.
        """
        keep, found = list(running), []
        while sum(wanted for _, _, wanted in keep) > free:
            who, held, _ = keep.pop()
            found.append(who)
            free += held
        return found

    # -- one step -------------------------------------------------------------------------------

    def add(self, prompt: Sequence[int], max_tokens: int) -> ToyRequest:
        """Queue a request; one that the pool could never hold is refused."""
        number = len(self.waiting) + len(self.running) + len(self.done)
        request = ToyRequest(number, len(prompt), max_tokens, list(prompt))
        if self._want(request, len(prompt) + max_tokens - 1) > self.num_blocks:
            raise ValueError(
                f"request {number} needs more than the pool's {self.num_blocks} blocks"
            )
        self.waiting.append(request)
        return request

    def step(self) -> bool:
        """Plan, compute, hand out tokens; False when there is nothing to do."""
        plan = self.schedule()
        for request, count in plan:
            self._compute(request, count)
        for request in [r for r in self.running if len(r.output) >= r.max_tokens]:
            self._release(request)
            self.done.append(request)
        return bool(plan)

    def run(self, limit: int = 1000) -> list[list[int]]:
        """Step until all is served; the output of each request, in order of id."""
        while self.step():
            if len(self.log) > limit:
                raise RuntimeError(f"no end after {limit} steps; the log's last lines say why")
        return [request.output for request in sorted(self.done, key=lambda r: r.id)]

    def schedule(self) -> list[tuple[ToyRequest, int]]:
        """Requests and how many tokens each computes: decodes first, then chunks of prompts."""
        lost = self._make_room()
        decodes = [r for r in self.running if r.decoding]
        for request in decodes:
            self._take(request, request.computed + 1)
        prompts = [r for r in self.running if not r.decoding]
        if not lost:
            prompts += self._admit(self.budget - len(decodes) - sum(map(self._left, prompts)))
        sizes = self.chunks(self.budget, len(decodes), [self._left(r) for r in prompts])
        chunks = [(r, size) for r, size in zip(prompts, sizes, strict=True) if size]
        if decodes or chunks:
            self._note(decodes, chunks, lost)
        return [*((r, 1) for r in decodes), *chunks]

    def _make_room(self) -> list[int]:
        """Preempt until every decode can have the block it may need."""
        wanted = [(r.id, len(r.block_table), self._want(r, r.computed + r.decoding))
                  for r in self.running]  # fmt: skip
        lost = self.victims(wanted, len(self.kv.free))
        for request in [r for number in lost for r in self.running if r.id == number]:
            self._release(request)
            self.waiting.appendleft(request)
        return lost

    def _admit(self, budget: int) -> list[ToyRequest]:
        """Let requests in while budget, slots and blocks for all their tokens last."""
        admitted: list[ToyRequest] = []
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            if self._want(request, len(request.tokens)) > len(self.kv.free):
                break
            self.running.append(self.waiting.popleft())
            self._take(request, len(request.tokens))
            budget -= self._left(request)
            admitted.append(request)
        return admitted

    def _compute(self, request: ToyRequest, count: int) -> None:
        """Write the KV of the next ``count`` tokens; after the last one, a token comes out."""
        start, end = request.computed, request.computed + count
        query, keys, values = self.model.project(request.tokens[start:end], start)
        rows = [self.slot(request.block_table, p, self.block_size) for p in range(end)]
        self.kv.keys[rows[start:]], self.kv.values[rows[start:]] = keys, values
        request.computed = end
        if end == len(request.tokens):
            seen = self.kv.keys[rows], self.kv.values[rows]
            request.tokens.append(self.model.next_token(query[-1], *seen))

    # -- blocks ---------------------------------------------------------------------------------

    def _left(self, request: ToyRequest) -> int:
        return len(request.tokens) - request.computed

    def _want(self, request: ToyRequest, tokens: int) -> int:
        """Blocks that ``request`` still lacks for ``tokens`` tokens of KV."""
        now, held = request.computed, len(request.block_table)
        return max(0, self.new_blocks([(now, tokens - now, held)], self.block_size))

    def _take(self, request: ToyRequest, tokens: int) -> None:
        request.block_table += [self.kv.free.pop() for _ in range(self._want(request, tokens))]

    def _release(self, request: ToyRequest) -> None:
        self.running.remove(request)
        self.kv.free += request.block_table
        request.block_table, request.computed = [], 0

    def _note(
        self, decodes: list[ToyRequest], chunks: list[tuple[ToyRequest, int]], lost: list[int]
    ) -> None:
        """One line for people: what the step does, and the blocks in use."""
        words = [f"decode {' '.join(str(r.id) for r in decodes)}"] if decodes else []
        words += [f"prompt {r.id}: {r.computed} to {r.computed + n}" for r, n in chunks]
        words += [f"preempted {number}" for number in lost]
        used = self.num_blocks - len(self.kv.free)
        self.log.append(f"{', '.join(words) or 'nothing'} ({used}/{self.num_blocks} blocks)")
