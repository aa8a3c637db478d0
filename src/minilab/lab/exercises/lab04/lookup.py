"""Exercise 4.1: prompt lookup, the proposer that needs no model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception


def look_up(tokens: Sequence[int], most: int, longest: int, shortest: int) -> list[int]:
    """Up to ``most`` tokens that followed the last few tokens before; [] for no idea.

    The longest match counts, of equal ones the newest.
    """
    return _searched(tokens, most, range(longest, shortest - 1, -1))


def _searched(
    tokens: Sequence[int],
    most: int,
    sizes: Iterable[int],
    *,
    oldest: bool = False,
    skip: int = 0,
    with_match: bool = False,
) -> list[int]:
    """The search, with each of its steps open to a mistake."""
    for size in sizes:
        tail = list(tokens[len(tokens) - size :]) if size <= len(tokens) else None
        ends = list(range(len(tokens) - 1, size - 1, -1))
        for end in ends[::-1] if oldest else ends:
            if list(tokens[end - size : end]) == tail:
                start = end - size if with_match else end + skip
                return list(tokens[start : start + most])
    return []


def _down(longest: int, shortest: int) -> range:
    return range(longest, shortest - 1, -1)


def _draw(rng: random.Random) -> Case:
    piece = [rng.randint(1, 6) for _ in range(rng.randint(3, 6))]
    text = [
        *piece,
        rng.randint(7, 9),
        *piece[rng.randint(0, 1) :],
        *(rng.choices(range(1, 7), k=3)),
    ]
    text += piece[: rng.randint(1, 3)]
    longest = rng.randint(2, 3)
    return Case((text, rng.randint(1, 4), longest, rng.randint(1, longest)))


LOOKUP = Exercise(
    "4.1",
    "Look it up",
    look_up,
    cases=(
        Case(([5, 6, 7, 8, 9, 5, 6], 3, 3, 2), name="a pair that stood there before"),
        Case(([1, 2, 3, 1, 2, 4, 1, 2], 2, 2, 1), name="two places: the newer one says otherwise"),
        Case(([3, 1, 2, 7, 1, 2, 9, 3, 1, 2], 2, 3, 1), name="a longer match lies further back"),
        Case(([4, 5, 6, 5], 3, 3, 2), name="one token matches, but two are asked"),
    ),
    misconceptions=(
        Misconception(
            "the oldest place",
            lambda t, m, hi, lo: _searched(t, m, _down(hi, lo), oldest=True),
            "of several places the newest counts: a text goes on as it did lately",
        ),
        Misconception(
            "shortest first",
            lambda t, m, hi, lo: _searched(t, m, range(lo, hi + 1)),
            "a short match hides a longer one: begin with the most tokens",
        ),
        Misconception(
            "longest only",
            lambda t, m, hi, lo: _searched(t, m, [hi]),
            "where the longest n-gram has no match, a shorter one may have one",
        ),
        Misconception(
            "the place itself",
            lambda t, m, hi, lo: [],
            "the last tokens match themselves, and nothing follows them there: look only at places "
            "that have a token behind them",
        ),
        Misconception(
            "the match again",
            lambda t, m, hi, lo: _searched(t, m, _down(hi, lo), with_match=True),
            "these are the matched tokens themselves; what *followed* them is the guess",
        ),
        Misconception(
            "one token late",
            lambda t, m, hi, lo: _searched(t, m, _down(hi, lo), skip=1),
            "the first token behind the match is skipped, so every guess is one place off",
        ),
        Misconception(
            "no limit",
            lambda t, m, hi, lo: _searched(t, len(t), _down(hi, lo)),
            "more than `most` guesses: each one is a position that the target must verify",
        ),
        Misconception(
            "down to one token",
            lambda t, m, hi, lo: _searched(t, m, _down(hi, 1)),
            "matches shorter than `shortest` are chance: they widen the batch and fail",
        ),
    ),
    hints=(
        "For each length from longest down to shortest: take the last tokens of that length.",
        "Walk over the places where they could have ended before, the newest first; the last token "
        "of the text is not one of them, for nothing follows it.",
        "The guess is the slice behind the place, at most `most` long.",
    ),
    draw=_draw,
    unit="token",
)
