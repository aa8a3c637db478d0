"""Exercise 4.3: a batched sampler with two mistakes that greedy decoding of one request hides."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception
from minilab.lab.exercises.lab04.accept import DrawAt, accept

Logits = Sequence[float]


def odds(logits: Logits, temperature: float) -> list[float]:
    """softmax(logits / temperature)."""
    top = max(logits)
    raw = [math.exp((each - top) / temperature) for each in logits]
    total = sum(raw)
    return [each / total for each in raw]


def greedy(drafts: Sequence[int], rows: Sequence[Logits]) -> list[int]:
    """Drafts as long as they are the likeliest tokens, and the likeliest token behind them."""
    out: list[int] = []
    for place, row in enumerate(rows):
        out.append(max(range(len(row)), key=row.__getitem__))
        if place == len(drafts) or out[-1] != drafts[place]:
            break
    return out


def verify(
    lengths: Sequence[int],
    drafts: Sequence[int],
    target: Sequence[Logits],
    draft: Sequence[Logits],
    temperatures: Sequence[float],
    coins: Sequence[float],
    draws: Sequence[DrawAt],
) -> list[list[int]]:
    """Output of each request. Requests lie one after the other: ``drafts``, ``draft`` and ``coins``
    have one row per draft, ``target`` has one more per request."""
    return _verify(lengths, drafts, target, draft, temperatures, coins, draws)


def shipped(
    lengths: Sequence[int],
    drafts: Sequence[int],
    target: Sequence[Logits],
    draft: Sequence[Logits],
    temperatures: Sequence[float],
    coins: Sequence[float],
    draws: Sequence[DrawAt],
) -> list[list[int]]:
    """The sampler as the lab hands it out."""
    return _verify(
        lengths, drafts, target, draft, temperatures, coins, draws, shift=0, heated=False
    )


def _verify(
    lengths: Sequence[int],
    drafts: Sequence[int],
    target: Sequence[Logits],
    draft: Sequence[Logits],
    temperatures: Sequence[float],
    coins: Sequence[float],
    draws: Sequence[DrawAt],
    *,
    shift: int = 1,
    heated: bool = True,
    one_temperature: bool = False,
    first_coins: bool = False,
) -> list[list[int]]:
    out = []
    for request, count in enumerate(lengths):
        first = sum(lengths[:request])
        row = first + shift * request
        guesses, rows = drafts[first : first + count], target[row : row + count + 1]
        temperature = temperatures[0 if one_temperature else request]
        if temperature == 0:
            out.append(greedy(guesses, rows))
            continue
        p = [odds(each, temperature) for each in rows]
        q = [odds(each, temperature if heated else 1.0) for each in draft[first : first + count]]
        own = coins[:count] if first_coins else coins[first : first + count]
        out.append(accept(guesses, p, q, own, draws[request]))
    return out


def batch(rng: random.Random, temperatures: Sequence[float]) -> Case:
    """A batch with these temperatures: random logits over four tokens, drafts drawn from them."""
    lengths = [rng.randint(1, 3) for _ in temperatures]
    target = [[rng.gauss(0, 1.5) for _ in range(4)] for _ in range(sum(lengths) + len(lengths))]
    draft = [[rng.gauss(0, 1.5) for _ in range(4)] for _ in range(sum(lengths))]
    heat = [t for t, count in zip(temperatures, lengths, strict=True) for _ in range(count)]
    drafts = [
        rng.choices(range(4), weights=odds(row, t))[0] if t else max(range(4), key=row.__getitem__)
        for row, t in zip(draft, heat, strict=True)
    ]
    coins = [rng.random() for _ in drafts]
    draws = [DrawAt(rng.random()) for _ in lengths]
    return Case((lengths, drafts, target, draft, list(temperatures), coins, draws))


def _draw(rng: random.Random) -> Case:
    return batch(rng, [rng.choice([0.0, 0.5, 1.0, 2.0]) for _ in range(rng.randint(1, 3))])


def _named(seed: int, temperatures: Sequence[float], name: str) -> Case:
    return Case(batch(random.Random(seed), temperatures).args, name=name)


SAMPLER = Exercise(
    "4.3",
    "Wrong only where nobody looked",
    verify,
    cases=(
        _named(1, [0.0], "one request, T = 0"),
        _named(2, [1.0], "one request, T = 1"),
        _named(11, [0.5], "one request, T = 0.5"),
        _named(7, [0.0, 0.0], "two requests, T = 0"),
        _named(9, [1.0, 2.0, 0.5], "three requests, three temperatures"),
    ),
    misconceptions=(
        Misconception(
            "as it was handed out",
            shipped,
            "this is still the sampler that was handed out; compare its output with the target's "
            "odds at other temperatures and with more requests",
        ),
        Misconception(
            "rows of the wrong request",
            lambda *given: _verify(*given, shift=0),
            "right for one request, wrong from the second on: each request before has one target "
            "row *more* than it has drafts",
        ),
        Misconception(
            "the drafter's odds before temperature",
            lambda *given: _verify(*given, heated=False),
            "right at temperature 0 and 1 only: the draft was drawn at the request's temperature, "
            "so its odds must be taken there too",
        ),
        Misconception(
            "one temperature for all",
            lambda *given: _verify(*given, one_temperature=True),
            "requests in a batch have temperatures of their own",
        ),
        Misconception(
            "coins of the first request",
            lambda *given: _verify(*given, first_coins=True),
            "every request would throw the same coins: texts of one batch would fail together",
        ),
    ),
    hints=(
        "One mistake shows with one request alone, at a temperature that is neither 0 nor 1.",
        "The other shows even at temperature 0, from the second request on: count the rows.",
        "Where does the second request's first row lie in `target`, if the first has two drafts?",
    ),
    draw=_draw,
    draws=30,
    unit="token",
)
