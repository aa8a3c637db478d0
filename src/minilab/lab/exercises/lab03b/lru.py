"""Exercise 3b.4: an LRU tier that evicts tails before heads."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Prompts = Sequence[Sequence[str]]


def lru_hits(prompts: Prompts, capacity: int) -> int:
    """Blocks found, over all prompts, in an LRU store of ``capacity`` blocks."""
    return _serve(prompts, capacity)


def _serve(
    prompts: Prompts,
    capacity: int,
    *,
    tail_first: bool = True,
    refresh: bool = True,
    leading: bool = True,
    insert_first: bool = False,
) -> int:
    store: OrderedDict[str, None] = OrderedDict()
    hits = 0
    for prompt in prompts:
        if not insert_first:
            hits += _count(prompt, store, leading)
        order: Iterable[str] = reversed(prompt) if tail_first else prompt
        for block in order:
            if block not in store or refresh:
                store[block] = None
                store.move_to_end(block)
        while len(store) > capacity:
            store.popitem(last=False)
        if insert_first:
            hits += _count(prompt, store, leading)
    return hits


def _count(prompt: Sequence[str], store: OrderedDict[str, None], leading: bool) -> int:
    if not leading:
        return sum(block in store for block in prompt)
    found = 0
    while found < len(prompt) and prompt[found] in store:
        found += 1
    return found


def _draw(rng: random.Random) -> Case:
    prompts = []
    for _ in range(rng.randint(4, 9)):
        name = rng.choice("abc")
        prompts.append([f"{name}{k}" for k in range(rng.randint(1, 4))])
    return Case((prompts, rng.randint(2, 7)))


LRU = Exercise(
    "3b.4",
    "An LRU tier",
    lru_hits,
    cases=(
        Case(([["a0", "a1", "a2"], ["b0"], ["a0", "a1", "a2"]], 3), name="one block too many"),
        Case(([["a0"], ["b0"], ["a0"], ["c0"], ["a0"]], 2), name="a block that is used again"),
        Case(([["a0", "a1"], ["b0", "b1"], ["a0", "a1"], ["b0", "b1"]], 4), name="everything fits"),
        Case(([["a0", "a1", "a2"], ["b0"], ["a0", "a1", "a2"], ["a0"]], 2), name="a tiny store"),
    ),
    misconceptions=(
        Misconception(
            "heads first",
            lambda p, c: _serve(p, c, tail_first=False),
            "heads were evicted before their tails; a tail without its head can never be found",
        ),
        Misconception(
            "first in, first out",
            lambda p, c: _serve(p, c, refresh=False),
            "a block that is used again must become the youngest; this evicts by age of entry",
        ),
        Misconception(
            "any resident block",
            lambda p, c: _serve(p, c, tail_first=False, leading=False),
            "blocks behind a missing one were counted: a hit is a leading run",
        ),
        Misconception(
            "looked up after",
            lambda p, c: _serve(p, c, insert_first=True),
            "the prompt was put in before it was looked up, so it finds itself",
        ),
        Misconception(
            "no limit",
            lambda p, c: _serve(p, 10**9),
            "nothing was evicted",
        ),
    ),
    hints=(
        "For each prompt: look up, then put in, then evict.",
        "Touch the blocks from the last to the first, so that the first is the youngest.",
        "collections.OrderedDict has move_to_end and popitem(last=False).",
    ),
    draw=_draw,
    unit="blocks",
)
