"""What prompts share: the hit rates of a cache that reads a trace as a plain sequence.

No time passes here and nothing is computed: each request looks up its blocks, then leaves all of
them in an LRU cache. That gives the reuse a trace offers, and what a routing policy keeps of it,
before any scheduler, pool or clock blurs the picture. A block is one prompt segment, and the
partial last block of a prompt counts as a block (a serving engine caches full blocks only, so its
figures differ a little).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minilab.facts.errors import InputError
from minilab.facts.request import Request, Segment

Prompt = tuple[Segment, ...]

POLICIES = ("round-robin", "random", "prefix")


def segments(
    prompts: Iterable[Prompt | None],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Segments per prompt, int64[n] (-1 for None), then all content ids and lengths, int64[S]."""
    known = list(prompts)
    counts = np.array([-1 if p is None else len(p) for p in known], np.int64)
    pairs = chain.from_iterable(p for p in known if p is not None)
    try:
        flat = np.fromiter(chain.from_iterable(pairs), np.int64).reshape(-1, 2)
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"prompt segments: {error}; pairs of whole numbers below 2**63; renumber the contents"
        ) from error
    return counts, flat[:, 0], flat[:, 1]


def block_prompts(
    lengths: Sequence[int], ids: Sequence[Sequence[int]], block: int = 512
) -> list[Prompt]:
    """Prompts of ``lengths`` tokens from their block ids: full blocks, then the partial last one.

    Each list of ids holds ceil(length / block) of them, none negative. Prompts share the tuples
    of their full blocks, which saves half of the memory and of the time.
    """
    top = max(chain.from_iterable(ids))
    full: Sequence[Segment] | dict[int, Segment]
    if top < 4 * sum(map(len, ids)):
        full = list(zip(range(top + 1), repeat(block), strict=False))
    else:  # ids that are hashes: a table up to the largest would not fit
        known = set(chain.from_iterable(ids))
        full = {b: (b, block) for b in known}
    segment = full.__getitem__
    return [
        (*map(segment, row[:-1]), (row[-1], tokens - block * (len(row) - 1)))
        for tokens, row in zip(lengths, ids, strict=True)
    ]


class Hits(NamedTuple):
    """Three definitions of one hit rate; they differ, so a figure has to name its own.

    ``block``: hit blocks over all blocks. ``token``: hit tokens over all tokens (a partial block
    weighs less). ``request_mean``: the mean over requests of hit tokens over own tokens (a short
    prompt weighs as much as a long one).
    """

    block: float
    token: float
    request_mean: float


@dataclass(frozen=True)
class ReplicaHits:
    """Hit rates over private caches, and how evenly the policy spread the input tokens."""

    hits: Hits
    tokens: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """Input tokens of the busiest replica over the mean of all (1 is even, N is one only)."""
        return max(self.tokens) * len(self.tokens) / sum(self.tokens)


class LruCache:
    """Block ids in order of last use; ``capacity`` in blocks, None for no limit."""

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 0:
            raise InputError(f"capacity {capacity} blocks; at least 0; None means no limit")
        self.capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, prompt: Prompt) -> int:
        """The length in blocks of the prompt's leading run that is in the cache."""
        blocks = self._blocks
        for n, (block, _) in enumerate(prompt):
            if block not in blocks:
                return n
        return len(prompt)

    def add(self, prompt: Prompt) -> None:
        """Use all blocks of a prompt, tail first, so that its head is evicted last."""
        blocks = self._blocks
        for block, _ in reversed(prompt):
            blocks[block] = None
            blocks.move_to_end(block)
        if self.capacity is not None:
            for _ in range(len(blocks) - self.capacity):
                blocks.popitem(last=False)


def lru_hits(requests: Iterable[Request], capacity: int | None = None) -> Hits:
    """Hit rates of one LRU cache of ``capacity`` blocks that sees every request in turn."""
    return replica_hits(requests, 1, "round-robin", capacity).hits


def hit_curve(requests: Iterable[Request], capacities: Iterable[int | None]) -> list[Hits]:
    """Hit rates at each capacity (blocks); never lower at a larger one."""
    rows = list(requests)
    return [lru_hits(rows, capacity) for capacity in capacities]


def replica_hits(
    requests: Iterable[Request],
    replicas: int,
    policy: str,
    capacity: int | None = None,
    seed: int = 0,
) -> ReplicaHits:
    """Hit rates of N replicas with a private LRU cache of ``capacity`` blocks each.

    ``round-robin`` deals requests in turn, ``random`` draws a replica, ``prefix`` takes the
    longest match and, between equal matches, the replica sent the fewest input tokens so far.
    """
    prompts = [r.prompt for r in requests if r.prompt]
    if not prompts or replicas < 1:
        raise InputError(
            f"{len(prompts)} prompts with content, {replicas} replicas; at least 1 of each; "
            "use a trace with block ids"
        )
    if policy not in POLICIES:
        raise InputError(f"policy {policy!r}; unknown; use one of {', '.join(POLICIES)}")
    caches = [LruCache(capacity) for _ in range(replicas)]
    sent = [0] * replicas
    dealt = np.arange(len(prompts)) % replicas
    if policy == "random":
        dealt = np.random.default_rng(seed).integers(replicas, size=len(prompts))
    run = []
    for prompt, turn in zip(prompts, dealt.tolist(), strict=True):
        if policy == "prefix":
            found = [cache.match(prompt) for cache in caches]
            turn = max(range(replicas), key=lambda k: (found[k], -sent[k]))
        run.append(caches[turn].match(prompt))
        caches[turn].add(prompt)
        sent[turn] += sum(length for _, length in prompt)
    return ReplicaHits(_rates(prompts, run), tuple(sent))


def _rates(prompts: list[Prompt], run: list[int]) -> Hits:
    """The three rates from the leading run of hits (blocks) of each prompt."""
    counts, _, length = segments(prompts)
    hit = np.array(run)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    before = np.concatenate(([0], np.cumsum(length)))
    tokens = before[starts + hit] - before[starts]
    own = before[starts + counts] - before[starts]
    block, token = hit.sum() / counts.sum(), tokens.sum() / own.sum()
    return Hits(float(block), float(token), float((tokens / own).mean()))


def chained_block(prompts: Iterable[Prompt | None]) -> int | None:
    """The block size at which each content id names all text before it too, or None.

    True of the Mooncake traces: one id never follows two different ones. Such ids can serve as
    block hashes as they are.
    """
    size: int | None = None
    before: dict[int, int] = {}
    for prompt in prompts:
        previous = -1
        for content, length in prompt or ():
            if size is None:
                size = length
            if length != size:
                break  # a partial last block is nobody's prefix
            if before.setdefault(content, previous) != previous:
                return None
            previous = content
    return size
