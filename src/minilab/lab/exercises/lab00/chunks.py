"""Exercise 0.3: which part of each prompt fits into a step."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception
from minilab.lab.toy_engine import ToyEngine


def chunks(budget: int, decodes: int, prompts: Sequence[int]) -> list[int]:
    """Tokens each prompt computes in this step; ``prompts`` are the tokens left of each."""
    return ToyEngine.chunks(budget, decodes, prompts)


def _whole_only(budget: int, decodes: int, prompts: Sequence[int]) -> list[int]:
    left, found = budget - decodes, []
    for rest in prompts:
        found.append(rest if rest <= left else 0)
        left -= found[-1]
    return found


def _shortest_first(budget: int, decodes: int, prompts: Sequence[int]) -> list[int]:
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    sizes = chunks(budget, decodes, [prompts[i] for i in order])
    return [sizes[order.index(i)] for i in range(len(prompts))]


def _without_zeros(budget: int, decodes: int, prompts: Sequence[int]) -> list[int]:
    return [size for size in chunks(budget, decodes, prompts) if size]


def _step(rng: random.Random) -> Case:
    decodes = rng.randint(3, 40)
    budget = decodes + rng.randint(20, 300)
    prompts = [rng.randint(15, 250) for _ in range(rng.randint(2, 5))]
    return Case((budget, decodes, prompts))


CHUNKS = Exercise(
    "0.3",
    "The chunks that fit the budget",
    chunks,
    cases=(
        Case((512, 40, [300, 600, 200]), name="the second prompt is cut, the third waits"),
        Case((64, 8, [12, 20]), name="all of it fits"),
        Case((48, 30, [700]), name="a long prompt beside many decodes"),
    ),
    misconceptions=(
        Misconception(
            "decodes forgotten",
            lambda budget, decodes, prompts: chunks(budget, 0, prompts),
            "each decode computes a token in this step too, out of the same budget",
        ),
        Misconception(
            "whole prompts only",
            _whole_only,
            "a prompt that does not fit was left out whole: it can be computed in pieces",
        ),
        Misconception(
            "equal shares",
            lambda budget, decodes, prompts: [
                min(rest, (budget - decodes) // len(prompts)) for rest in prompts
            ],
            "the budget was split evenly: the prompt that came first would end later, and nobody "
            "sooner",
        ),
        Misconception(
            "whole budget for each",
            lambda budget, decodes, prompts: [min(rest, budget - decodes) for rest in prompts],
            "each prompt may use the whole budget here: what one takes is gone for the next",
        ),
        Misconception(
            "shortest first",
            _shortest_first,
            "the shortest prompts were served first: here they are served in order of arrival",
        ),
        Misconception(
            "no cut at all",
            lambda budget, decodes, prompts: list(prompts),
            "nothing was cut: this step takes as long as all prompts together",
        ),
        Misconception(
            "zeros left out",
            _without_zeros,
            "one number for each prompt, please: a prompt that gets nothing has a 0",
        ),
    ),
    hints=(
        "What is left of the budget once every decode has its token?",
        "Go through the prompts in order and give each as much as is left, but not more than it "
        "needs.",
        "min(rest, left), and take it off what is left before the next one.",
    ),
    draw=_step,
)
