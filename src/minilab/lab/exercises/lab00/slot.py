"""Exercise 0.1: where the KV of one token lies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception
from minilab.lab.toy_engine import ToyEngine


def slot(block_table: Sequence[int], position: int, block_size: int) -> int:
    """Row of the cache that holds the token at ``position`` (both count from 0)."""
    return ToyEngine.slot(block_table, position, block_size)


def _clipped(index: Callable[[int, int], int]) -> Callable[[Sequence[int], int, int], int]:
    """The right formula with another index into the table, kept inside it."""

    def wrong(table: Sequence[int], position: int, size: int) -> int:
        at = min(max(index(position, size), 0), len(table) - 1)
        return table[at] * size + position % size

    return wrong


def _table(rng: random.Random) -> Case:
    size = rng.choice([2, 4, 8, 16])
    table = rng.sample(range(3, 60), rng.randint(3, 7))
    return Case((table, rng.randrange(size, len(table) * size), size))


SLOT = Exercise(
    "0.1",
    "The slot of a token",
    slot,
    cases=(
        Case(([7, 2, 9], 21, 8), name="three blocks of 8, the token in the last one"),
        Case(([7, 2, 9], 8, 8), name="the first token of the second block"),
        Case(([5, 30, 11, 4], 31, 16), name="the last token of the second block"),
    ),
    misconceptions=(
        Misconception(
            "the position itself",
            lambda table, p, size: p,
            "this is where the token would lie if the blocks lay one after the other; the table "
            "says where they really are",
        ),
        Misconception(
            "inside the block",
            lambda table, p, size: p % size,
            "this is the place inside the block: which block it is has no influence here",
        ),
        Misconception(
            "start of the block",
            lambda table, p, size: table[p // size] * size,
            "this is the first row of the right block: each token of the block would get it",
        ),
        Misconception(
            "block id not multiplied",
            lambda table, p, size: table[p // size] + p % size,
            "a block id counts blocks; rows count tokens, so many to a block",
        ),
        Misconception(
            "quotient and remainder swapped",
            lambda table, p, size: table[p % size % len(table)] * size + p // size,
            "quotient and remainder have changed places: which of them says the block?",
        ),
        Misconception(
            "position from 1",
            lambda table, p, size: slot(table, p - 1, size),
            "this is the token before it: positions count from 0",
        ),
        Misconception(
            "next block",
            _clipped(lambda p, size: -(-p // size)),
            "the block index was rounded up: a block begins at each multiple of its size",
        ),
    ),
    hints=(
        "Two questions: in which block of the request is the token, and where in that block?",
        "divmod(position, block_size) answers both at once.",
        "The table turns the request's own block number into a block of the pool. Each block of "
        "the pool has block_size rows.",
    ),
    draw=_table,
)
