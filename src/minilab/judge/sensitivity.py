"""What choices made before a fit do to what comes out of it, by the closed form: no simulation.

Two figures of the calibration rest on a choice. The share of the link ``e_link`` stays fixed, and
``e_comp`` makes up for it. And each (model, GPU) pair counts the same in a fit, however many rows
it has: a choice made with the error of left-out pairs in view, which is therefore not blind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from minilab.judge.closed_scores import Pairs, errors_of, fit_closed, pairs_of
from minilab.judge.silicon import start
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.split import halves, leave_one_pair_out

LINK_SHARES = (0.10, 0.15, 0.20, 0.30, 0.40)

Weights = Callable[[Sequence[SiliconRow]], list[float]]


def link_shares(rows: Sequence[SiliconRow], family: str = "hopper") -> list[dict[str, Any]]:
    """Fits of ``family``'s vLLM rows with the link share fixed at one of LINK_SHARES: the share of
    the tensor peak ``e_comp`` that comes out, and the errors of the held half."""
    group = _of(rows, family)
    split = halves(group)
    found = []
    for share in LINK_SHARES:
        begin = replace(start(group), e_link=share)
        constants = fit_closed(split.fit, begin, pairs_alike(split.fit))
        errors = errors_of(pairs_of(split.held, constants))
        found.append({"e_link": share, "e_comp": constants.e_comp, **errors})
    return found


def pair_weights(rows: Sequence[SiliconRow], family: str = "hopper") -> list[dict[str, Any]]:
    """Errors of ``family``'s pairs, each left out once, under both ways to weigh the other rows."""
    ways: dict[str, Weights] = {"each pair": pairs_alike, "each row": rows_alike}
    return [
        {"alike": name, **errors_of(_left_out(_of(rows, family), weigh))}
        for name, weigh in ways.items()
    ]


def pairs_alike(rows: Sequence[SiliconRow]) -> list[float]:
    """Weights under which each pair counts the same, 1 on average."""
    count = Counter(row.pair for row in rows)
    even = len(rows) / len(count)
    return [even / count[row.pair] for row in rows]


def rows_alike(rows: Sequence[SiliconRow]) -> list[float]:
    """Weights under which the most measured pair decides."""
    return [1.0] * len(rows)


def _left_out(rows: Sequence[SiliconRow], weigh: Weights) -> Pairs:
    pairs: Pairs = {"tpot": [], "ttft": []}
    for _, split in leave_one_pair_out(rows):
        constants = fit_closed(split.fit, start(rows), weigh(split.fit))
        for metric, found in pairs_of(split.held, constants).items():
            pairs[metric] += found
    return pairs


def _of(rows: Sequence[SiliconRow], family: str) -> list[SiliconRow]:
    return [row for row in rows if row.engine == "vllm" and row.family == family]
