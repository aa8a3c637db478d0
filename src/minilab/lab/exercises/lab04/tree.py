"""Exercise 4.D1: what a tree of guesses brings, against a chain of as many positions."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception


def tree_tokens(parents: Sequence[int], chances: Sequence[float]) -> float:
    """Expected tokens of a step that verifies a tree of guesses.

    ``parents``: for each guess the index of the guess before it, -1 for none; parents come first.
    ``chances``: that the target's token at this place is this guess, given that its parent was
    right. Siblings are different tokens, so at most one of them is right.
    """
    return 1 + sum(_reach(parents, chances))


def _reach(parents: Sequence[int], chances: Sequence[float]) -> list[float]:
    """Chance of each guess to be right together with all before it."""
    reach: list[float] = []
    for parent, chance in zip(parents, chances, strict=True):
        reach.append(chance * (reach[parent] if parent >= 0 else 1.0))
    return reach


def _leaves(parents: Sequence[int], chances: Sequence[float]) -> float:
    reach = _reach(parents, chances)
    return 1 + sum(reach[i] for i in range(len(parents)) if i not in parents)


def _best_path(parents: Sequence[int], chances: Sequence[float]) -> float:
    """Only the likeliest child of each guess."""
    children: dict[int, int] = {}
    for node, parent in enumerate(parents):
        if parent not in children or chances[node] > chances[children[parent]]:
            children[parent] = node
    total, reach, node = 1.0, 1.0, -1
    while node in children:
        node = children[node]
        reach *= chances[node]
        total += reach
    return total


def _draw(rng: random.Random) -> Case:
    parents: list[int] = [-1]
    left = {-1: 0.9}
    chances = []
    for node in range(rng.randint(3, 9)):
        if node:
            parents.append(rng.choice([-1, *range(node)]))
        parent = parents[node]
        chance = rng.uniform(0.1, 0.6) * left[parent]
        left[parent] -= chance
        left[node] = 0.9
        chances.append(chance)
    return Case((parents, chances))


TREE = Exercise(
    "4.D1",
    "A tree or a chain",
    tree_tokens,
    cases=(
        Case(([-1, 0, 1], [0.6, 0.5, 0.4]), name="a chain of three"),
        Case(([-1, -1, -1], [0.6, 0.2, 0.1]), name="three guesses for one place"),
        Case(([-1, -1, 0, 0, 1], [0.6, 0.2, 0.5, 0.3, 0.5]), name="two levels"),
    ),
    misconceptions=(
        Misconception(
            "every guess counts as if its parent were right",
            lambda parents, chances: 1 + sum(chances),
            "a guess is worth something only if all before it are right: multiply along its path",
        ),
        Misconception(
            "no token of the target",
            lambda parents, chances: sum(_reach(parents, chances)),
            "the target adds a token of its own, whatever is right",
        ),
        Misconception(
            "leaves only",
            _leaves,
            "a path that fails half-way still brings the guesses before: count every node",
        ),
        Misconception(
            "the best path",
            _best_path,
            "the other branches are verified as well, and may be right when the best is not",
        ),
        Misconception(
            "a chain",
            lambda parents, chances: tree_tokens([*range(-1, len(parents) - 1)], chances),
            "not every guess follows the one before it in the list: `parents` says which one",
        ),
    ),
    hints=(
        "The chance of a node is its own times that of its parent.",
        "Expected length is the sum of chances over all nodes, and one token more.",
        "Parents come first in the list, so one pass is enough.",
    ),
    draw=_draw,
    core=False,
    unit="tokens",
)
