"""Exercise 3a.2: how many tokens of a request need not be computed."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception


def cached_tokens(hashes: Sequence[str], cache: Collection[str], tokens: int, size: int) -> int:
    """Tokens of the leading cached blocks; the request's last token is always computed."""
    found = 0
    while found < len(hashes) and hashes[found] in cache:
        found += 1
    return min(found, (tokens - 1) // size) * size


def _run(hashes: Sequence[str], cache: Collection[str]) -> int:
    found = 0
    while found < len(hashes) and hashes[found] in cache:
        found += 1
    return found


def _draw(rng: random.Random) -> Case:
    size = rng.choice([4, 16])
    blocks = rng.randint(1, 6)
    hashes = [f"h{k}" for k in range(blocks)]
    cache = [h for h in hashes if rng.random() < 0.75]
    tokens = blocks * size + rng.choice([0, 0, 1, size - 1])
    return Case((hashes, cache, tokens, size))


HITS = Exercise(
    "3a.2",
    "Tokens that need not be computed",
    cached_tokens,
    cases=(
        Case((["a", "b", "c"], ["a", "b"], 55, 16), name="the third block is missing"),
        Case((["a", "b", "c"], ["b", "c"], 55, 16), name="the first block is missing"),
        Case((["a", "b"], ["a", "b"], 32, 16), name="everything is cached"),
    ),
    misconceptions=(
        Misconception(
            "every cached block",
            lambda h, c, t, s: min(sum(x in c for x in h), (t - 1) // s) * s,
            "a block counts only if all before it are there too: attention needs the whole prefix",
        ),
        Misconception(
            "nothing left to compute",
            lambda h, c, t, s: _run(h, c) * s,
            "nothing is left to compute, so there are no logits and no first token; the last "
            "token must be computed",
        ),
        Misconception(
            "one token less",
            lambda h, c, t, s: min(_run(h, c) * s, t - 1),
            "the cache hands out whole blocks: a hit that ends inside one is rounded down",
        ),
        Misconception(
            "blocks",
            lambda h, c, t, s: min(_run(h, c), (t - 1) // s),
            "this counts blocks; tokens are asked",
        ),
        Misconception(
            "always a block less",
            lambda h, c, t, s: max(0, _run(h, c) - 1) * s,
            "only a hit of the whole prompt gives its last block back; here tokens are left over",
        ),
    ),
    hints=(
        "Walk from the front and stop at the first block that is not there.",
        "At least one token must be left: how many whole blocks fit before the last token?",
    ),
    draw=_draw,
    unit="tokens",
)
