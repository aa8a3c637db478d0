"""spec_law: how far what a batched sampler puts out is from the target's own odds, by trying."""

from __future__ import annotations

import random
from collections.abc import Callable

from minilab.lab.exercises.lab04.accept import DrawAt
from minilab.lab.exercises.lab04.sampler import odds

Sampler = Callable[..., list[list[int]]]
"""(lengths, drafts, target, draft, temperatures, coins, draws) -> output of each request."""
VOCAB, GUESSES = 5, 2


def distance(
    sampler: Sampler, temperature: float, requests: int, draws: int = 3000, seed: int = 4
) -> float:
    """Total variation distance of the last request's first token from the target's odds.

    Every request has its own logits and two guesses, drawn from the drafter's odds at
    ``temperature``. About sqrt(VOCAB / draws) / 2 of it is chance. At temperature 0 it is the share
    of targets, out of 40, for which another token than the likeliest comes out.
    """
    dice = random.Random(seed)
    if temperature == 0:
        return sum(_greedy_is_wrong(sampler, requests, dice) for _ in range(40)) / 40
    target, draft = _logits(requests, 1, dice), _logits(requests, 0, dice)
    seen = [0] * VOCAB
    weights = [odds(row, temperature) for row in draft]
    for _ in range(draws):
        drafts = [dice.choices(range(VOCAB), weights=row)[0] for row in weights]
        coins = [dice.random() for _ in drafts]
        coin = [DrawAt(dice.random()) for _ in range(requests)]
        heat, lengths = [temperature] * requests, [GUESSES] * requests
        seen[sampler(lengths, drafts, target, draft, heat, coins, coin)[-1][0]] += 1
    wanted = odds(target[-GUESSES - 1], temperature)
    return sum(abs(n / draws - p) for n, p in zip(seen, wanted, strict=True)) / 2


def _logits(requests: int, more: int, dice: random.Random) -> list[list[float]]:
    """Rows of logits: one per guess, and ``more`` per request."""
    rows = requests * (GUESSES + more)
    return [[dice.gauss(0, 1.5) for _ in range(VOCAB)] for _ in range(rows)]


def _greedy_is_wrong(sampler: Sampler, requests: int, dice: random.Random) -> bool:
    target, draft = _logits(requests, 1, dice), _logits(requests, 0, dice)
    drafts = [max(range(VOCAB), key=row.__getitem__) for row in draft]
    coins, coin = [0.5] * len(drafts), [DrawAt(0.5)] * requests
    out = sampler([GUESSES] * requests, drafts, target, draft, [0.0] * requests, coins, coin)
    row = target[-GUESSES - 1]
    return out[-1][0] != max(range(VOCAB), key=row.__getitem__)
