"""The exact law of what speculative decoding puts out, summed case by case; nothing is drawn.

It follows the rule as it is written down, not the sampler's code: the tests hold the one against
the other, and the course shows with it why the rule is lossless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

Odds = Sequence[float]
Model = Callable[[tuple[int, ...]], Odds]
"""Next-token probabilities after some tokens."""
Law = dict[tuple[int, ...], float]
"""Probability of each outcome."""


def chain(model: Model, length: int) -> Law:
    """Law of ``length`` tokens drawn one after the other from ``model``."""
    law: Law = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): chance * odds
            for text, chance in law.items()
            for token, odds in enumerate(model(text))
            if chance * odds
        }
    return law


def residual(target: Odds, draft: Odds) -> list[float]:
    """What the target has more than the drafter, as probabilities; the target where it has none."""
    left = [max(p - q, 0.0) for p, q in zip(target, draft, strict=True)]
    total = sum(left)
    return [each / total for each in left] if total else list(target)


def step(target: Model, draft: Model, k: int) -> Law:
    """Law of the 1 to ``k`` + 1 tokens of one step with ``k`` drafts."""
    law: Law = {}
    vocabulary = range(len(target(())))
    for guess in product(vocabulary, repeat=k):
        reach = 1.0  # that these drafts are proposed, and kept so far
        for position, token in enumerate(guess):
            before = guess[:position]
            p, q = target(before), draft(before)
            keep = min(1.0, p[token] / q[token]) if q[token] else 0.0
            reach *= q[token]
            for other, odds in enumerate(residual(p, q)):
                _add(
                    law,
                    (*before, other),
                    _share(draft, guess, position) * reach * (1 - keep) * odds,
                )
            reach *= keep
        for bonus, odds in enumerate(target(guess)):
            _add(law, (*guess, bonus), reach * odds)
    return law


def _share(draft: Model, guess: tuple[int, ...], position: int) -> float:
    """Chance of the drafts behind ``position``: they are thrown away, whatever they are."""
    chance = 1.0
    for later in range(position + 1, len(guess)):
        chance *= draft(guess[:later])[guess[later]]
    return chance


def completed(target: Model, law: Law, length: int) -> Law:
    """Law of the first ``length`` tokens when later steps go on from ``law`` as the target does."""
    whole: Law = {}
    for text, chance in law.items():
        if len(text) >= length:
            _add(whole, text[:length], chance)
            continue
        rest = chain(partial(_after, target, text), length - len(text))
        for more, odds in rest.items():
            _add(whole, (*text, *more), chance * odds)
    return whole


def _after(model: Model, text: tuple[int, ...], more: tuple[int, ...]) -> Odds:
    return model((*text, *more))


def _add(law: Law, text: tuple[int, ...], chance: float) -> None:
    if chance:
        law[text] = law.get(text, 0.0) + chance
