"""Exercise 3a.1: the hash chain of a prompt's blocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Digest = Callable[..., str]


class ShowDigest:
    """A hash that shows what went into it, so that a wrong one can be read."""

    def __call__(self, *parts: object) -> str:
        return "<" + " ".join(map(str, parts)) + ">"

    def __repr__(self) -> str:
        return "digest"


DIGEST = ShowDigest()


def block_hashes(tokens: Sequence[int], size: int, digest: Digest) -> list[str]:
    """Hashes of the full blocks: each of its parent's hash and its own tokens."""
    parent, found = "root", []
    for start in range(0, len(tokens) - size + 1, size):
        parent = digest(parent, *tokens[start : start + size])
        found.append(parent)
    return found


def _blocks(tokens: Sequence[int], size: int) -> list[Sequence[int]]:
    return [tokens[k : k + size] for k in range(0, len(tokens) - size + 1, size)]


def _with_partial(tokens: Sequence[int], size: int, digest: Digest) -> list[str]:
    parent, found = "root", []
    for start in range(0, len(tokens), size):
        parent = digest(parent, *tokens[start : start + size])
        found.append(parent)
    return found


def _draw(rng: random.Random) -> Case:
    size = rng.choice([2, 3, 4])
    return Case(([rng.randint(1, 9) for _ in range(rng.randint(1, 14))], size, DIGEST))


HASHES: Exercise = Exercise(
    "3a.1",
    "The hash chain of a prompt",
    block_hashes,
    cases=(
        Case(([7, 7, 7, 7, 7], 2, DIGEST), name="equal blocks and a rest"),
        Case(([1, 2, 3, 4], 2, DIGEST), name="two full blocks"),
        Case(([1, 2, 3], 4, DIGEST), name="a prompt shorter than a block"),
    ),
    misconceptions=(
        Misconception(
            "no parent",
            lambda t, s, d: [d("root", *block) for block in _blocks(t, s)],
            "the blocks do not know what stands before them: equal text at another place would "
            "be served with KV that was computed for other positions",
        ),
        Misconception(
            "partial block",
            _with_partial,
            "the last block is not full; it will change with the next token, so it has no name yet",
        ),
        Misconception(
            "whole prefix",
            lambda t, s, d: [d("root", *t[: (k + 1) * s]) for k in range(len(t) // s)],
            "each hash reads the whole prefix again: right in spirit, quadratic in work; use the "
            "parent's hash",
        ),
        Misconception(
            "one block late",
            lambda t, s, d: block_hashes(t, s, d)[:-1],
            "the last full block is missing",
        ),
        Misconception(
            "only the last",
            lambda t, s, d: block_hashes(t, s, d)[-1:],
            "one hash for the whole prompt finds only equal prompts, never a shared beginning",
        ),
    ),
    hints=(
        "Only full blocks get a hash: how many are there?",
        'The parent of the first block is the text "root".',
        "Keep the last hash in a variable and hand it to the next call of digest.",
    ),
    draw=_draw,
)
