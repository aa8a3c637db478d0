"""Grid: what varies within the sides, and the map that it spans.

An axis is a setting of which some side has more than one value; seeds repeat a point. What differs
between sides only is the change that is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name
from minilab.lab.run_report.runs import NO_AXIS, Run, same_requests
from minilab.sim.regime_cell import Cell, Judge
from minilab.sim.regime_map import RegimeMap

Point = tuple[Any, ...]
MOST_AXES = 2
UNITS = {
    "rate": "rate (requests/s)",
    "prompt_tokens": "prompt (tokens)",
    "output_tokens": "output (tokens)",
    "concurrency": "clients",
    "link_bandwidth": "link (bytes/s)",
}


@dataclass(frozen=True)
class Grid:
    """Sides over points: ``sides[name][point]`` are the runs there, one per seed."""

    axes: tuple[str, ...]
    points: tuple[Point, ...]
    sides: Mapping[str, Mapping[Point, tuple[Run, ...]]]
    baseline: str

    @property
    def others(self) -> list[str]:
        """The sides that are held against the baseline."""
        return [name for name in self.sides if name != self.baseline]

    def at(self, point: Point) -> str:
        """A point in words; empty where nothing varies."""
        return ", ".join(f"{plain_name(a)} {v}" for a, v in zip(self.axes, point, strict=True))


def plain_name(axis: str) -> str:
    """A setting's name for readers."""
    return axis.replace("_", " ")


def grid_of(runs: Sequence[Run], baseline: str | None) -> Grid:
    """The grid that the runs span; the baseline is the first side unless named.

    Raises:
        InputError: no such baseline, more than two axes, or one seed twice at a point.
    """
    names = list(dict.fromkeys(run.side for run in runs))
    if baseline is not None and baseline not in names:
        raise InputError(f"--baseline: {unknown_name('side', baseline, names)}")
    axes = tuple(axis for axis in _candidates(runs) if _varies(runs, axis))
    if len(axes) > MOST_AXES:
        raise InputError(
            f"report: {len(axes)} settings vary within a side ({', '.join(axes)}); a map has "
            "at most two; give fewer runs, or other names to those that differ"
        )
    sides: dict[str, dict[Point, tuple[Run, ...]]] = {name: {} for name in names}
    for run in runs:
        point = tuple(run.settings.get(axis) for axis in axes)
        sides[run.side][point] = (*sides[run.side].get(point, ()), run)
    for name, side in sides.items():
        for point, there in side.items():
            _check_seeds(name, point, there)
    points = sorted({point for side in sides.values() for point in side}, key=_order)
    return Grid(axes, tuple(points), sides, baseline or names[0])


def _candidates(runs: Sequence[Run]) -> list[str]:
    """What may be an axis: what the logs themselves call their place, else every setting."""
    named = [run.log.meta.get("point") or {} for run in runs]
    if all(named):
        return list(dict.fromkeys(str(key) for point in named for key in point))
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return [key for key in keys if key not in NO_AXIS]


def _varies(runs: Sequence[Run], axis: str) -> bool:
    seen: dict[str, set[str]] = {}
    for run in runs:
        seen.setdefault(run.side, set()).add(repr(run.settings.get(axis)))
    return any(len(values) > 1 for values in seen.values())


def _order(point: Point) -> tuple[tuple[int, float, str], ...]:
    """Numbers by size, then words."""
    return tuple(
        (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))
        for value in point
    )


def _check_seeds(name: str, point: Point, runs: Sequence[Run]) -> None:
    hashes = [run.workload_hash for run in runs]
    if len(runs) > 1 and len(set(hashes)) < len(runs):
        files = ", ".join(run.path for run in runs)
        raise InputError(
            f"report: side {name!r} has {len(runs)} runs of one setting ({files}) that served the "
            "same requests, or do not say which; give each another seed, or another name"
        )


def paired(grid: Grid, side: str, point: Point) -> list[tuple[Run, Run]] | None:
    """(run of the side, run of the baseline) on the same requests; None where some have none."""
    ours = grid.sides[side].get(point, ())
    theirs = list(grid.sides[grid.baseline].get(point, ()))
    pairs = []
    for run in ours:
        match = next((other for other in theirs if same_requests(run, other)), None)
        if match is None:
            return None
        theirs.remove(match)
        pairs.append((run, match))
    return pairs if pairs and not theirs else None


def cell(grid: Grid, side: str, point: Point, judge: Judge) -> Cell | None:
    """The side against the baseline at a point; None where they cannot be compared."""
    pairs = paired(grid, side, point)
    if pairs is None:
        return None
    if any(run.row[judge.metric] is None for pair in pairs for run in pair):
        return None
    return judge.cell([a.row for a, _ in pairs], [b.row for _, b in pairs])


def map_of(grid: Grid, side: str, judge: Judge, slos: str) -> RegimeMap | None:
    """The regime map where two axes span a full grid of comparable points; else None."""
    if len(grid.axes) != MOST_AXES:
        return None
    xs, ys = (tuple(dict.fromkeys(p[k] for p in grid.points)) for k in range(MOST_AXES))
    xs, ys = (tuple(sorted(values, key=lambda v: _order((v,)))) for values in (xs, ys))
    cells = {(x, y): cell(grid, side, (x, y), judge) for x, y in product(xs, ys)}
    full = {at: found for at, found in cells.items() if found is not None}
    if len(full) < len(cells) or len(xs) < 2 or len(ys) < 2:
        return None
    runs = [run for point in grid.points for run in grid.sides[side][point]]
    return RegimeMap(
        x_name=UNITS.get(grid.axes[0], plain_name(grid.axes[0])),
        x_values=xs,
        y_name=UNITS.get(grid.axes[1], plain_name(grid.axes[1])),
        y_values=ys,
        a_name=side,
        b_name=grid.baseline,
        metric=judge.metric,
        margin=judge.margin,
        least_attainment=judge.least_attainment,
        seeds=tuple(range(len(grid.sides[side][grid.points[0]]))),
        slos=slos,
        data=tuple(sorted({_kind(run) for run in runs})),
        cells=tuple(tuple(full[x, y] for x in xs) for y in ys),
    )


def _kind(run: Run) -> str:
    data = run.log.meta.get("data")
    return str(data.get("kind")) if isinstance(data, dict) else "unknown"
