"""Exercise 4.D2: how many guesses at which batch, as vLLM's table [[from, to, k], ...]."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Times = Mapping[tuple[int, int], float]
Row = list[int]
Steps = dict[tuple[int, int], float]


def draft_table(seconds: Times, kept: Sequence[float]) -> list[Row]:
    """[first batch, last batch, k] with the most tokens per second at each measured batch.

    ``seconds``: step time by (batch, k), k = 0 among them. ``kept``: chance that the guess at each
    position is kept, unconditional. A measured batch stands for all up to the next one; neighbours
    with the same k are one row; of equal speeds the smaller k.
    """
    return _table(seconds, lambda k, time: (1 + sum(kept[:k])) / time)


def _table(
    seconds: Times, worth: Callable[[int, float], float], merged: bool = True, least: int = 0
) -> list[Row]:
    batches = sorted({batch for batch, _ in seconds})
    rows: list[Row] = []
    for number, batch in enumerate(batches):
        until = batches[number + 1] - 1 if number + 1 < len(batches) else batch
        of = {k: time for (size, k), time in seconds.items() if size == batch and k >= least}
        k = max(of, key=lambda each: (worth(each, of[each]), -each))
        if merged and rows and rows[-1][2] == k:
            rows[-1][1] = until
        else:
            rows.append([batch, until, k])
    return rows


def _conditional(kept: Sequence[float], k: int) -> float:
    total, reach = 1.0, 1.0
    for chance in kept[:k]:
        reach *= chance
        total += reach
    return total


def step_times(
    base: float, slope: float, batches: Sequence[int], most: int
) -> dict[tuple[int, int], float]:
    """A roofline of two lines: flat up to where arithmetic takes over, by (batch, k)."""
    return {
        (batch, k): max(base, slope * batch * (k + 1)) + 0.02 * base * k
        for batch in batches
        for k in range(most + 1)
    }


def _draw(rng: random.Random) -> Case:
    kept, now = [], 1.0
    for _ in range(rng.randint(2, 5)):
        now *= rng.uniform(0.45, 0.95)
        kept.append(now)
    batches = sorted(rng.sample([1, 2, 4, 8, 16, 32, 64, 128, 256], rng.randint(3, 6)))
    batches[0] = 1
    times = step_times(rng.uniform(5e-3, 2e-2), rng.uniform(2e-5, 2e-4), batches, len(kept))
    return Case((times, kept))


TABLE = Exercise(
    "4.D2",
    "How many guesses at which batch",
    draft_table,
    cases=(
        Case(
            (step_times(7e-3, 4e-5, (1, 16, 64, 128), 4), [0.76, 0.58, 0.45, 0.35]),
            name="a good drafter: fewer guesses as the batch grows",
        ),
        Case(
            (step_times(7e-3, 4e-5, (1, 32, 128, 512), 3), [0.2, 0.05, 0.01]),
            name="a poor one",
        ),
    ),
    misconceptions=(
        Misconception(
            "most tokens per step",
            lambda s, kept: _table(s, lambda k, time: 1 + sum(kept[:k])),
            "more guesses never lower the tokens per *step*; tokens per second decide",
        ),
        Misconception(
            "shortest step",
            lambda s, kept: _table(s, lambda k, time: 1 / time),
            "the shortest step is always the one without guesses; weigh it by what it brings",
        ),
        Misconception(
            "chances multiplied",
            lambda s, kept: _table(s, lambda k, time: _conditional(kept, k) / time),
            "`kept` is unconditional already, as engines export it: add, do not multiply",
        ),
        Misconception(
            "the target's token forgotten",
            lambda s, kept: _table(s, lambda k, time: sum(kept[:k]) / time),
            "a step puts out the kept guesses *and* one token of the target",
        ),
        Misconception(
            "always some guess",
            lambda s, kept: _table(s, lambda k, time: (1 + sum(kept[:k])) / time, least=1),
            "no guess at all must be allowed: at a large batch it is the best",
        ),
        Misconception(
            "rows not merged",
            lambda s, kept: _table(s, lambda k, time: (1 + sum(kept[:k])) / time, merged=False),
            "neighbours with the same k are one row",
        ),
    ),
    hints=(
        "For each batch and k: (1 + the first k of kept, added) over the step's time.",
        "A row reaches to one below the next measured batch; the last one ends with its own.",
        "If the row before has the same k, lengthen it.",
    ),
    draw=_draw,
    core=False,
)
