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
from typing import Any, NamedTuple

from minilab.facts.confidence import Interval, mean_ci
from minilab.facts.errors import InputError
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.facts.user_input import unknown_name
from minilab.sim.experiment import Experiment
from minilab.sim.repeats import repeats
from minilab.sim.sweep import Row, Task, plain, run_all

WINS, LOSES, EQUAL, NEITHER = "wins", "loses", "no difference", "neither serves"
VERDICTS = (WINS, LOSES, EQUAL, NEITHER)

MORE_IS_BETTER = (
    "goodput_per_gpu", "goodput", "attainment", "throughput", "completed", "token_hit_rate"
)  # fmt: skip
"""Of all other numbers of a row (times, preemptions, KV use) less is better."""

Axis = tuple[str, Sequence[Any]]
Side = Callable[[Any, Any], Experiment | None]
SLOs = SLO | SLOSet | str


class Cell(NamedTuple):
    """One point of the map, seen from A.

    a, b: the metric, mean over seeds with its interval; None where a side does not serve at all or
    the metric is unavailable. difference: A's advantage as a share of the better mean (+0.2: B
    reaches 80 % of A), paired by seed; None if a side has no value. attainment_a, attainment_b:
    means, None if unavailable.
    """

    verdict: str
    a: Interval | None
    b: Interval | None
    difference: Interval | None
    attainment_a: float | None
    attainment_b: float | None


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
        at = [(cell.verdict == verdict, x) for cell, x in zip(self.cells[row], self.x_values)]
        for holds, stretch in groupby(at, key=lambda pair: pair[0]):
            values = [x for _, x in stretch]
            found += [(values[0], values[-1])] if holds else []
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per point, for a table."""
        return [
            {self.x_name: x, self.y_name: y, **_flat(self.cells[j][i])}
            for (j, y), (i, x) in product(enumerate(self.y_values), enumerate(self.x_values))
        ]

    def table(self) -> str:
        """The map as a Markdown table, largest y on top as in the picture."""
        head = [f"{self.y_name} \\ {self.x_name}", *map(str, self.x_values)]
        lines = [head, ["---"] * len(head)]
        for y, row in reversed(list(zip(self.y_values, self.cells, strict=True))):
            lines.append([str(y), *map(_words, row)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``from_dict`` reads them back."""
        return asdict(self) | {"cells": [[_nested(cell) for cell in row] for row in self.cells]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RegimeMap:
        """The map that ``to_dict`` described."""
        lists = {name: tuple(v) for name, v in data.items() if isinstance(v, list | tuple)}
        cells = tuple(tuple(_cell_of(cell) for cell in row) for row in data["cells"])
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
        metric: a number of ``sim.sweep.numbers``; less is better unless in MORE_IS_BETTER.
        seeds: repetitions (for a trace: where the replay starts, see ``sim.repeats``).
        names: what A and B are called.
        jobs, out, progress: as in ``sweep``; a ``.jsonl`` store makes the map resumable.

    Raises:
        InputError: no such metric, an empty axis, a margin outside [0, 1), and as ``sweep``.
    """
    _check(x, y, margin, least_attainment)
    x_values, y_values = ([plain(value) for value in values] for _, values in (x, y))
    points = list(product(y_values, x_values))
    pairs: list[tuple[list[Task], list[Task]]] = []
    texts = []
    for y_value, x_value in points:
        chosen = slos(x_value, y_value) if callable(slos) else slos
        texts.append(str(as_slo_set(chosen)))
        both = (_tasks(side(x_value, y_value), seeds, texts[-1]) for side in (a, b))
        pairs.append((next(both), next(both)))
    tasks = [task for pair in pairs for side in pair for task in side]
    measured = iter(run_all(tasks, jobs=jobs, out=out, progress=progress))
    rows = [[[next(measured) for _ in side] for side in pair] for pair in pairs]
    some = next(row for pair in rows for side in pair for row in side)
    if metric not in some or isinstance(some[metric], str):
        raise unknown_name("metric of a regime map", metric, some.keys() - {"key", "data"})
    judge = _Judge(metric, margin, least_attainment)
    cells = [judge.cell(*pair) for pair in rows]
    width = len(x_values)
    return RegimeMap(
        *(x[0], tuple(x_values), y[0], tuple(y_values), *names),
        metric=metric,
        margin=margin,
        seeds=tuple(seeds),
        slos=texts[0] if len(set(texts)) == 1 else "different at each point",
        data=tuple(sorted({row["data"] for pair in rows for side in pair for row in side})),
        cells=tuple(tuple(cells[k : k + width]) for k in range(0, len(cells), width)),
    )


class _Judge(NamedTuple):
    metric: str
    margin: float
    least: float

    def cell(self, a: Sequence[Row], b: Sequence[Row]) -> Cell:
        """From the rows of each side, one per seed in the same order; none: it cannot be built."""
        ours, theirs = self._values(a), self._values(b)
        difference = None if ours is None or theirs is None else self._paired(ours, theirs)
        attained = _attainment(a), _attainment(b)
        serves = [
            values is not None and (share is None or share >= self.least)
            for values, share in zip((ours, theirs), attained, strict=True)
        ]
        verdict = NEITHER
        if any(serves):
            verdict = self._verdict(difference) if difference else WINS if serves[0] else LOSES
        intervals = (None if v is None else mean_ci(v) for v in (ours, theirs))
        return Cell(verdict, *intervals, difference, *attained)

    def _values(self, rows: Sequence[Row]) -> list[float] | None:
        values = [row[self.metric] for row in rows]
        return None if None in values or not values else values

    def _paired(self, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        sign = 1 if self.metric in MORE_IS_BETTER else -1
        scale = max(abs(mean_ci(ours).value), abs(mean_ci(theirs).value)) or 1.0
        return mean_ci([sign * (p - q) / scale for p, q in zip(ours, theirs, strict=True)])

    def _verdict(self, difference: Interval) -> str:
        value, low, high = difference
        if abs(value) <= self.margin:
            return EQUAL
        if low is not None and high is not None and low <= 0 <= high:
            return EQUAL
        return WINS if value > 0 else LOSES


def _check(x: Axis, y: Axis, margin: float, least: float) -> None:
    for name, values in (x, y):
        if isinstance(values, str) or not len(values):
            raise InputError(f"regime map: axis {name!r} has values {values!r}; give a list, not 0")
    if not 0 <= margin < 1:
        raise InputError(f"regime map: margin {margin}; a share from 0 to below 1, such as 0.05")
    if not 0 <= least <= 1:
        raise InputError(f"regime map: least_attainment {least}; a share, from 0 to 1")


def _tasks(experiment: Experiment | None, seeds: Sequence[int], slos: str) -> list[Task]:
    found = [] if experiment is None else repeats(experiment, seeds)
    return [Task(repeat, slos) for repeat in found]


def _attainment(rows: Sequence[Row]) -> float | None:
    shares = [row["attainment"] for row in rows]
    return None if None in shares or not shares else mean_ci(shares).value


def _flat(cell: Cell) -> dict[str, Any]:
    flat = cell._asdict()
    for name in ("a", "b", "difference"):
        interval = flat[name] or (None, None, None)
        flat |= zip((name, f"{name}_low", f"{name}_high"), interval, strict=True)
    return flat


def _nested(cell: Cell) -> dict[str, Any]:
    found = cell._asdict()
    return {k: v._asdict() if isinstance(v, Interval) else v for k, v in found.items()}


def _cell_of(data: Mapping[str, Any]) -> Cell:
    return Cell(**{k: Interval(**v) if isinstance(v, Mapping) else v for k, v in data.items()})


def _words(cell: Cell) -> str:
    return cell.verdict if not cell.difference else f"{cell.verdict} {cell.difference.value:+.0%}"
