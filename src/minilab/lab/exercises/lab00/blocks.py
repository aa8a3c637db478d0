"""Exercise 0.2: how many blocks a step takes from the pool."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception
from minilab.lab.toy_engine import ToyEngine

Rows = Sequence[tuple[int, int, int]]


def new_blocks(requests: Rows, block_size: int) -> int:
    """Blocks to take; each request is (tokens computed, new tokens in this step, blocks held)."""
    return ToyEngine.new_blocks(requests, block_size)


def _up(tokens: int, size: int) -> int:
    return -(-tokens // size)


def _rows(rng: random.Random) -> Case:
    size = rng.choice([4, 8, 16])
    rows = []
    for _ in range(rng.randint(3, 7)):
        done = rng.choice([0, size, rng.randint(1, 5 * size)])
        new = 1 if done and rng.random() < 0.6 else rng.randint(1, 3 * size)
        rows.append((done, new, _up(done, size)))
    return Case((rows, size))


BLOCKS = Exercise(
    "0.2",
    "The blocks that a step takes",
    new_blocks,
    cases=(
        Case(
            ([(16, 1, 2), (11, 1, 2), (0, 21, 0), (8, 8, 1)], 8),
            name="a decode whose last block is full, one with room, a new prompt, a chunk",
        ),
        Case(([(5, 1, 2), (6, 1, 2), (7, 1, 2)], 4), name="three decodes with room left"),
        Case(([(0, 200, 0), (64, 64, 4)], 16), name="two prompts"),
    ),
    misconceptions=(
        Misconception(
            "only the new tokens",
            lambda rows, size: sum(_up(new, size) for _, new, _ in rows),
            "the new tokens were rounded up by themselves: a last block with room takes some in",
        ),
        Misconception(
            "pooled",
            lambda rows, size: _up(sum(new for _, new, _ in rows), size),
            "all new tokens were put together: two requests do not share a block",
        ),
        Misconception(
            "rounded down",
            lambda rows, size: sum((done + new) // size - held for done, new, held in rows),
            "rounded down: a block that is begun is taken whole",
        ),
        Misconception(
            "blocks held are taken again",
            lambda rows, size: sum(_up(done + new, size) for done, new, _ in rows),
            "these are all blocks that the requests need; some of them they hold already",
        ),
        Misconception(
            "one per request",
            lambda rows, size: len(rows),
            "one block for each request: a decode needs one only when its last block is full",
        ),
        Misconception(
            "room for the token that comes out",
            lambda rows, size: sum(_up(done + new + 1, size) - held for done, new, held in rows),
            "the token that comes out is counted: its KV is written by the step that reads it",
        ),
        Misconception(
            "tokens",
            lambda rows, size: sum(new for _, new, _ in rows),
            "these are tokens; the pool hands out blocks",
        ),
    ),
    hints=(
        "Think of one request: how many blocks hold all tokens that it will have in the cache?",
        "Round up: -(-tokens // block_size) is a whole number without floats.",
        "Take off what it holds, and sum over the requests.",
    ),
    draw=_rows,
)
