"""Exercise 4.2: the acceptance rule. Its randomness is handed in, so that it can be checked."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Odds = Sequence[float]
Draw = Callable[[Odds], int]


class DrawAt:
    """Draws a token from probabilities with a coin that is thrown already.

    Where ``coin`` is beyond the sum of ``odds``, which then are no probabilities, the last token.
    """

    def __init__(self, coin: float) -> None:
        self._coin = coin

    def __call__(self, odds: Odds) -> int:
        """The token in whose stretch of 0..1 the coin lies."""
        total = 0.0
        for token, chance in enumerate(odds):
            total += chance
            if self._coin < total:
                return token
        return len(odds) - 1

    def __repr__(self) -> str:
        return "draw"


def residual(p: Odds, q: Odds) -> list[float]:
    """What p has more than q, as probabilities; p itself where it has nothing more."""
    left = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    total = sum(left)
    return [each / total for each in left] if total else list(p)


def accept(
    drafts: Sequence[int], p: Sequence[Odds], q: Sequence[Odds], coins: Odds, draw: Draw
) -> list[int]:
    """Tokens of one step: the drafts that are kept, and one token more.

    ``p``: the target's odds at each draft's place and behind the last; ``q``: the odds that each
    draft was drawn from; ``coins``: one per draft, uniform in 0..1.
    """
    out: list[int] = []
    for place, token in enumerate(drafts):
        if coins[place] * q[place][token] >= p[place][token]:
            return [*out, draw(residual(p[place], q[place]))]
        out.append(token)
    return [*out, draw(p[len(drafts)])]


def _wrong(
    drafts: Sequence[int],
    p: Sequence[Odds],
    q: Sequence[Odds],
    coins: Odds,
    draw: Draw,
    *,
    keeps: Callable[[float, float, float], bool] = lambda coin, a, b: coin * b < a,
    after: Callable[[Odds, Odds], Odds] = residual,
    bonus: bool = True,
    stops: bool = True,
    one_coin: bool = False,
) -> list[int]:
    out: list[int] = []
    for place, token in enumerate(drafts):
        coin = coins[0] if one_coin else coins[place]
        if keeps(coin, p[place][token], q[place][token]):
            out.append(token)
            continue
        out.append(draw(after(p[place], q[place])))
        if stops:
            return out
    return [*out, draw(p[len(drafts)])] if bonus else out


def _odds(rng: random.Random, size: int) -> list[float]:
    raw = [rng.random() ** 2 + 0.02 for _ in range(size)]
    return [each / sum(raw) for each in raw]


def _draw(rng: random.Random) -> Case:
    size, count = rng.randint(3, 5), rng.randint(1, 3)
    p = [_odds(rng, size) for _ in range(count + 1)]
    q = [_odds(rng, size) for _ in range(count)]
    drafts = [rng.choices(range(size), weights=row)[0] for row in q]
    coins = [rng.random() for _ in range(count)]
    return Case((drafts, p, q, coins, DrawAt(rng.random())))


EVEN = [0.25, 0.25, 0.25, 0.25]
ACCEPT = Exercise(
    "4.2",
    "The acceptance rule",
    accept,
    cases=(
        Case(
            ([2, 0], [[0.1, 0.2, 0.6, 0.1], [0.5, 0.2, 0.2, 0.1], EVEN], [EVEN, EVEN], [0.9, 0.9],
             DrawAt(0.3)),
            name="the target likes both drafts better than the drafter did",
        ),
        Case(
            ([0, 1], [[0.1, 0.5, 0.2, 0.2], EVEN, EVEN], [[0.7, 0.1, 0.1, 0.1], EVEN], [0.6, 0.1],
             DrawAt(0.9)),
            name="the first draft fails",
        ),
        Case(
            ([3, 2], [EVEN, [0.3, 0.3, 0.1, 0.3], EVEN], [EVEN, [0.1, 0.1, 0.7, 0.1]], [0.5, 0.2],
             DrawAt(0.95)),
            name="the second draft fails",
        ),
        Case(
            ([1], [[0.3, 0.2, 0.3, 0.2], EVEN], [[0.1, 0.4, 0.1, 0.4]], [0.4], DrawAt(0.6)),
            name="an unlikely draft is kept all the same",
        ),
    ),
    misconceptions=(
        Misconception(
            "one coin for all",
            lambda d, p, q, c, draw: _wrong(d, p, q, c, draw, one_coin=True),
            "each draft needs a coin of its own, else one failure foretells the next",
        ),
        Misconception(
            "p and q swapped",
            lambda d, p, q, c, draw: _wrong(
                d, p, q, c, draw,
                keeps=lambda coin, a, b: coin * a < b, after=lambda a, b: residual(b, a),
            ),
            "p and q have changed places: a draft is kept with p over q, and what is left is what "
            "the *target* has more",
        ),
        Misconception(
            "no coin",
            lambda d, p, q, c, draw: _wrong(d, p, q, c, draw, keeps=lambda coin, a, b: b <= a),
            "a draft that the target likes less than the drafter did is still kept sometimes: with "
            "chance p over q",
        ),
        Misconception(
            "coin against p",
            lambda d, p, q, c, draw: _wrong(d, p, q, c, draw, keeps=lambda coin, a, b: coin < a),
            "the draft was drawn with chance q already; kept with chance p it comes out with p "
            "times q",
        ),
        Misconception(
            "the target's own odds after a failure",
            lambda d, p, q, c, draw: _wrong(d, p, q, c, draw, after=lambda a, b: a),
            "after a failure the token comes from what p has *more* than q: from p itself, tokens "
            "that the drafter likes would come out twice over",
        ),
        Misconception(
            "not scaled",
            lambda d, p, q, c, draw: _wrong(
                d, p, q, c, draw,
                after=lambda a, b: [max(x - y, 0.0) for x, y in zip(a, b, strict=True)],
            ),
            "what p has more than q does not add up to one: scale it before drawing",
        ),
        Misconception(
            "no token behind the drafts",
            lambda d, p, q, c, draw: _wrong(d, p, q, c, draw, bonus=False),
            "where all drafts are kept the target has one more row, and a token of its own to give",
        ),
        Misconception(
            "goes on behind a failure",
            lambda d, p, q, c, draw: _wrong(d, p, q, c, draw, stops=False),
            "behind the first failure the drafts continue another text: they must be dropped",
        ),
    ),
    hints=(
        "A coin below p over q keeps the draft. Multiplied by q there is nothing to divide by.",
        "At the first failure: max(p - q, 0) for each token, divided by its sum, drawn from once; "
        "then the step is over.",
        "If the loop ends without a failure, draw from the last row of p.",
    ),
    draw=_draw,
    unit="token",
)  # fmt: skip
