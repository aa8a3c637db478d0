"""Pictures of a report: curves over what varies, shares of requests by latency, regime maps.

Each is a ``Picture`` with its alternative text; the numbers in the text are those of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from minilab.facts.slo import SLOSet, available
from minilab.lab.plots import plot_cdf, plot_latency_by_prompt_length, plot_regime_map
from minilab.lab.plots_base import canvas, in_style, number, seconds, sentences, time_axis
from minilab.lab.progress import Picture
from minilab.lab.run_report.grid import UNITS, Grid, Point, map_of, plain_name
from minilab.lab.run_report.runs import Run
from minilab.lab.show import draw
from minilab.sim.regime_cell import Judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARP = 3000
"""Requests up to which a curve is drawn as lines (SVG); above, that would be a large file."""
MOST_SIDES = 6
CURVES = (
    ("goodput_per_gpu", "goodput (good requests/s per GPU)"),
    ("ttft_p99", "TTFT p99 (ms or s)"),
    ("itl_p99", "ITL p99 (ms or s)"),
)


def curves(grid: Grid) -> Iterator[Picture]:
    """Goodput, TTFT and ITL of each side over the first axis, for each value of the second."""
    if not grid.axes or not isinstance(grid.points[0][0], (int, float)):
        return
    for second in dict.fromkeys(point[1:] for point in grid.points):
        fig, alt = _curves(grid, second)
        yield draw(fig, alt, "svg")


@in_style
def _curves(grid: Grid, second: Point) -> tuple[Figure, str]:
    fig, axes = canvas(1, len(CURVES), (11.0, 3.8))
    where = f" at {grid.at((None, *second)).partition(', ')[2]}" if second else ""
    name = UNITS.get(grid.axes[0], plain_name(grid.axes[0]))
    told = [f"curves over {name}{where}"]
    for ax, (metric, label) in zip(axes, CURVES, strict=True):
        for side, points in grid.sides.items():
            known = _line(points, second, metric)
            if not known:
                continue
            xs, ys = zip(*known, strict=True)
            ax.plot(xs, ys, marker="o", label=side)
            told.append(_line_words(side, label, metric, known))
        ax.set(xlabel=name, title=label.partition(" (")[0])
        if metric == "goodput_per_gpu":
            ax.set(ylim=(0, None), ylabel="good requests/s per GPU")
        elif ax.lines:
            ax.set(yscale="log")
            time_axis(ax.yaxis)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        fig.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    if where:
        fig.suptitle(where.strip(), fontsize=10)
    return fig, sentences(told)


def _line(
    points: Mapping[Point, tuple[Run, ...]], second: Point, metric: str
) -> list[tuple[float, float]]:
    found = []
    for point, runs in points.items():
        values = [run.row[metric] for run in runs]
        if point[1:] == second and None not in values:
            found.append((float(point[0]), float(np.mean(values))))
    return sorted(found)


def _line_words(side: str, label: str, metric: str, known: list[tuple[float, float]]) -> str:
    show = number if metric == "goodput_per_gpu" else seconds
    what = label.partition(" (")[0]
    (x0, y0), (x1, y1) = known[0], known[-1]
    return f"{what} of {side} goes from {show(y0)} at {number(x0)} to {show(y1)} at {number(x1)}"


def shares(grid: Grid, point: Point, slos: SLOSet) -> Iterator[Picture]:
    """Which share of the requests had at most so much TTFT and ITL: all sides at one point."""
    logs = {name: side[point][0].log for name, side in grid.sides.items() if point in side}
    limits = dict(slos.default.limits) if slos.default else {}
    for name in ("ttft", "itl"):
        known = {side: log for side, log in logs.items() if available(log, name)}
        if known:
            fig, alt = plot_cdf(known, limits.get(name), name=name)
            most = max(len(log) for log in known.values())
            yield draw(fig, alt, "svg" if most <= SHARP else "png")


def by_length(grid: Grid, point: Point, slos: SLOSet) -> Iterator[tuple[str, Picture]]:
    """Latency by prompt length of each side at one point, where lengths differ."""
    for name, side in list(grid.sides.items())[:MOST_SIDES]:
        if point not in side:
            continue
        log = side[point][0].log
        if np.unique(log.requests["prompt_tokens"]).size > 1 and available(log, "ttft"):
            fig, alt = plot_latency_by_prompt_length(log, slos=slos)
            yield name, draw(fig, f"{name}: {alt}", "svg")


def maps(grid: Grid, judge: Judge, slos: str) -> Iterator[tuple[str, Picture]]:
    """The regime map of each side against the baseline, where the runs span one."""
    for side in grid.others:
        found = map_of(grid, side, judge, slos)
        if found is not None:
            fig, alt = plot_regime_map(found)
            yield side, draw(fig, alt, "svg")
