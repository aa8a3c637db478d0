"""Regime map: for which workload A beats B, for which it loses, and where nobody could tell.

Two quantities span the map. At each of its points both sides serve the same requests, once per
seed, and are compared seed by seed, so that the luck of the arrivals cancels. A difference counts
only if it exceeds a margin and its interval over the seeds excludes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.facts.user_input import unknown_name
from minilab.sim.experiment import Experiment
from minilab.sim.regime_cell import (
    EQUAL,
    LOSES,
    MORE_IS_BETTER,
    NEITHER,
    VERDICTS,
    WINS,
    Cell,
    Judge,
)
from minilab.sim.repeats import Repeat, repeats
from minilab.sim.sweep import plain
from minilab.sim.sweep_row import NUMBERS
from minilab.sim.sweep_tasks import Task, run_all

__all__ = [
    "EQUAL",
    "LOSES",
    "MORE_IS_BETTER",
    "NEITHER",
    "VERDICTS",
    "WINS",
    "Cell",
    "RegimeMap",
    "regime_map",
]

Axis = tuple[str, Sequence[Any]]
Side = Callable[[Any, Any], Experiment | None]
SLOs = SLO | SLOSet | str


@dataclass(frozen=True)
class RegimeMap:
    """Verdicts over a grid: ``cells[j][i]`` is the point (x_values[i], y_values[j])."""

    x_name: str
    x_values: tuple[Any, ...]
    y_name: str
    y_values: tuple[Any, ...]
    a_name: str
    b_name: str
    metric: str
    margin: float
    least_attainment: float
    seeds: tuple[int, ...]
    slos: str
    data: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]

    @property
    def verdicts(self) -> list[list[str]]:
        """One of VERDICTS per point, [len(y_values)][len(x_values)]."""
        return [[cell.verdict for cell in row] for row in self.cells]

    def counts(self) -> dict[str, int]:
        """How many points have each verdict; all of VERDICTS are there."""
        found = [verdict for row in self.verdicts for verdict in row]
        return {verdict: found.count(verdict) for verdict in VERDICTS}

    def stretches(self, row: int, verdict: str = WINS) -> list[tuple[Any, Any]]:
        """Where along x the verdict holds in one row: (first x, last x) of each stretch."""
        found = []
        pairs = zip(self.cells[row], self.x_values, strict=True)
        for holds, stretch in groupby(pairs, key=lambda pair: pair[0].verdict == verdict):
            values = [x for _, x in stretch]
            found += [(values[0], values[-1])] if holds else []
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per point, for a table."""
        return [
            {self.x_name: x, self.y_name: y, **self.cells[j][i].flat()}
            for (j, y), (i, x) in product(enumerate(self.y_values), enumerate(self.x_values))
        ]

    def table(self) -> str:
        """The map as a Markdown table, largest y on top as in the picture."""
        head = [f"{self.y_name} \\ {self.x_name}", *map(str, self.x_values)]
        lines = [head, ["---"] * len(head)]
        for y, row in reversed(list(zip(self.y_values, self.cells, strict=True))):
            lines.append([str(y), *map(str, row)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``from_dict`` reads them back."""
        return asdict(self) | {"cells": [[cell.to_dict() for cell in row] for row in self.cells]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RegimeMap:
        """The map that ``to_dict`` described."""
        lists = {name: tuple(v) for name, v in data.items() if isinstance(v, list | tuple)}
        cells = tuple(tuple(Cell.from_dict(cell) for cell in row) for row in data["cells"])
        return cls(**{**data, **lists, "cells": cells})


def regime_map(
    x: Axis,
    y: Axis,
    a: Side,
    b: Side,
    slos: SLOs | Callable[[Any, Any], SLOs],
    *,
    metric: str = "goodput_per_gpu",
    margin: float = 0.05,
    least_attainment: float = 0.5,
    seeds: Sequence[int] = (0, 1, 2),
    names: tuple[str, str] = ("A", "B"),
    jobs: int = 1,
    out: Path | str | None = None,
    progress: bool = True,
) -> RegimeMap:
    """Compare A with B at every (x, y).

    A point's verdict, seen from A: "neither serves" if both sides have an attainment below
    ``least_attainment``; else "wins" or "loses" if the means differ by more than ``margin`` (a
    share of the better one) and the 95 % t interval of the paired differences excludes 0; else "no
    difference". From one seed there is no interval, and the margin decides alone.

    Args:
        x, y: (name with unit, values), at least one value each.
        a, b: (x, y) -> the experiment, or None where that side cannot be built (it then loses
            against one that serves). The same workload on both sides, please.
        slos: as in ``facts.slo.goodput``, or (x, y) -> such SLOs.
        metric: one of ``sim.sweep_row.NUMBERS``; less is better unless in MORE_IS_BETTER.
        seeds: repetitions (for a trace: where the replay starts, see ``sim.repeats``).
        names: what A and B are called.
        jobs, out, progress: as in ``sweep``; a ``.jsonl`` store makes the map resumable.

    Raises:
        InputError: no such metric, an empty axis, a margin outside [0, 1), and as ``sweep``.
    """
    _check(x, y, metric, margin, least_attainment)
    x_values, y_values = (tuple(map(plain, values)) for _, values in (x, y))
    points = [(x_value, y_value) for y_value in y_values for x_value in x_values]
    texts = [str(as_slo_set(slos(*at) if callable(slos) else slos)) for at in points]
    pairs = [[_repeats(side(*at), seeds) for side in (a, b)] for at in points]
    runs = [
        (r, text) for pair, text in zip(pairs, texts, strict=True) for side in pair for r in side
    ]
    tasks = [Task(*run) for run in runs]
    measured = run_all(tasks, jobs=jobs, out=out, progress=progress)
    rows = iter(measured)
    judge = Judge(metric, margin, least_attainment)
    cells = [judge.cell(*([next(rows) for _ in side] for side in pair)) for pair in pairs]
    width = len(x_values)
    return RegimeMap(
        *(x[0], x_values, y[0], y_values, *names),
        *(metric, margin, least_attainment, tuple(seeds)),
        slos=texts[0] if len(set(texts)) == 1 else "different at each point",
        data=tuple(sorted({row["data"] for row in measured})),
        cells=tuple(tuple(cells[k : k + width]) for k in range(0, len(cells), width)),
    )


def _check(x: Axis, y: Axis, metric: str, margin: float, least: float) -> None:
    if metric not in NUMBERS:
        raise unknown_name("metric of a regime map", metric, NUMBERS)
    for name, values in (x, y):
        if isinstance(values, str) or not len(values):
            raise InputError(f"regime map: axis {name!r} has values {values!r}; give a list, not 0")
    if not 0 <= margin < 1:
        raise InputError(f"regime map: margin {margin}; a share from 0 to below 1, such as 0.05")
    if not 0 <= least <= 1:
        raise InputError(f"regime map: least_attainment {least}; a share, from 0 to 1")


def _repeats(experiment: Experiment | None, seeds: Sequence[int]) -> list[Repeat]:
    return [] if experiment is None else repeats(experiment, seeds)
