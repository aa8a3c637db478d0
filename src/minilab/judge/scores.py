"""Scores: how far predictions lie from measurements, and measurements from each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from minilab.judge.silicon_rows import SiliconRow


class Scored(NamedTuple):
    """One row's predictions in seconds: of the simulator and of the closed form."""

    row: SiliconRow
    ttft: float
    tpot: float
    closed_ttft: float
    closed_tpot: float


@dataclass(frozen=True)
class Error:
    """Errors of ``n`` rows: median and p90 of the absolute one, and the signed median (shares).

    ``low`` and ``high``: of measured / predicted, the 10th and the 90th percentile. Four of five
    rows lay between ``low`` and ``high`` times their prediction.
    """

    n: int
    median: float
    p90: float
    bias: float
    low: float
    high: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Error:
        """The error of (predicted, measured) pairs."""
        made, seen = np.array(pairs, float).T
        off = made / seen - 1
        median, p90 = np.percentile(np.abs(off), [50, 90])
        low, high = np.percentile(seen / made, [10, 90])
        numbers = (median, p90, np.median(off), low, high)
        return cls(len(pairs), *(float(number) for number in numbers))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.median:.1%} / {self.p90:.1%}"


METRICS: dict[str, Callable[[Scored], tuple[float, float]]] = {
    "tpot": lambda s: (s.tpot, s.row.tpot),
    "ttft": lambda s: (s.ttft, s.row.ttft),
    "closed_tpot": lambda s: (s.closed_tpot, s.row.tpot),
    "closed_ttft": lambda s: (s.closed_ttft, s.row.ttft),
}


def errors(scored: Iterable[Scored]) -> dict[str, Error]:
    """The error of every metric."""
    found = list(scored)
    return {name: Error.of([pick(s) for s in found]) for name, pick in METRICS.items()}


def table(
    scored: Iterable[Scored], key: Callable[[SiliconRow], str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Errors by ``key`` of the row, as plain JSON values."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for one in scored:
        groups[key(one.row)].append(one)
    return {
        name: {metric: error.to_dict() for metric, error in errors(group).items()}
        for name, group in sorted(groups.items())
    }


def spread(rows: Iterable[SiliconRow]) -> dict[str, Any]:
    """How far repeats of one experiment lie apart: largest over smallest minus 1, median and p90.

    Same model, GPUs, precision, lengths and load; the engine's version may differ. Nobody should
    tune below it.
    """
    groups: dict[tuple[object, ...], list[SiliconRow]] = defaultdict(list)
    for row in rows:
        groups[row.key].append(row)
    repeated = [group for group in groups.values() if len(group) > 1]
    result: dict[str, Any] = {"repeated": len(repeated)}
    for name in ("tpot", "ttft"):
        values = [[getattr(row, name) for row in group] for group in repeated]
        apart = [max(v) / min(v) - 1 for v in values]
        if apart:
            median, p90 = np.percentile(apart, [50, 90])
            result[name] = {"median": float(median), "p90": float(p90)}
    return result
