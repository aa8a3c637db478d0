"""Exercise 0.4: who loses its blocks when there are too few."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minilab.lab.exercise import Case, Exercise, Misconception
from minilab.lab.toy_engine import ToyEngine

Rows = Sequence[tuple[int, int, int]]


def victims(running: Rows, free: int) -> list[int]:
    """Ids that lose their blocks, in that order; ``running``: (id, held, wanted), oldest first."""
    return ToyEngine.victims(running, free)


def _by(order: Callable[[Rows], list[int]]) -> Callable[[Rows, int], list[int]]:
    """Preempt in another order: ``order`` gives indices into ``running``, the first to go first."""

    def wrong(running: Rows, free: int) -> list[int]:
        found: list[int] = []
        for at in order(running):
            wanted = sum(w for number, _, w in running if number not in found)
            if wanted <= free:
                break
            found.append(running[at][0])
            free += running[at][1]
        return found

    return wrong


def _still_counted(running: Rows, free: int) -> list[int]:
    """The wants of those that were preempted are still to be met."""
    wanted, found = sum(w for _, _, w in running), []
    for number, held, _ in reversed(running):
        if wanted <= free:
            break
        found.append(number)
        free += held
    return found


def _not_freed(running: Rows, free: int) -> list[int]:
    """What a victim held does not come back."""
    keep, found = list(running), []
    while sum(w for _, _, w in keep) > free:
        found.append(keep.pop()[0])
    return found


def _running(rng: random.Random) -> Case:
    count = rng.randint(4, 8)
    names = sorted(rng.sample(range(11, 99), count))
    rows = [(name, rng.randint(1, 4), int(rng.random() < 0.8)) for name in names]
    short = sum(wanted for _, _, wanted in rows)
    return Case((rows, rng.randint(0, max(0, short - 2))))


VICTIMS = Exercise(
    "0.4",
    "Who is preempted",
    victims,
    cases=(
        Case(
            ([(21, 6, 1), (34, 2, 1), (55, 1, 1), (89, 1, 1)], 1),
            name="four decodes want a block each, one is free",
        ),
        Case(
            ([(13, 3, 0), (47, 5, 1), (62, 1, 1), (78, 1, 0), (91, 2, 1)], 1),
            name="not all want one",
        ),
        Case(([(16, 4, 1), (25, 4, 1)], 2), name="enough for all"),
    ),
    misconceptions=(
        Misconception(
            "oldest first",
            _by(lambda running: list(range(len(running)))),
            "the oldest was preempted: who came first keeps its blocks, or it may never end",
        ),
        Misconception(
            "largest first",
            _by(lambda running: sorted(range(len(running)), key=lambda i: -running[i][1])),
            "who holds most was preempted: fewest victims, and most work thrown away",
        ),
        Misconception(
            "the victim's own wish still counts",
            _still_counted,
            "a victim needs no block in this step any more: ask again what the others want",
        ),
        Misconception(
            "its blocks do not come back",
            _not_freed,
            "a victim's blocks are free from now on: fewer others have to go",
        ),
        Misconception(
            "only those that want one",
            _by(lambda running: [i for i in reversed(range(len(running))) if running[i][2]]),
            "only those that want a block were asked: the newest goes, whether it wants one or not",
        ),
        Misconception(
            "one, and hope",
            lambda running, free: [running[-1][0]] if sum(w for _, _, w in running) > free else [],
            "one victim need not be enough: go on until the others have what they want",
        ),
        Misconception(
            "the survivors",
            lambda running, free: [
                number for number, _, _ in running if number not in victims(running, free)
            ],
            "these are the ones that stay",
        ),
        Misconception(
            "oldest victim first",
            lambda running, free: victims(running, free)[::-1],
            "the right ones in the wrong order: the newest loses its blocks first",
        ),
    ),
    hints=(
        "First come, first served: whoever was admitted last gives way first.",
        "After each victim two things change: what is free, and what is still wanted.",
        "Take from the end of a copy of the list until the wishes of the rest can be met.",
    ),
    draw=_running,
)
