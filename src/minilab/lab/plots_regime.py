"""The picture of a regime map: a colour and a symbol per point, and the boundary of the wins."""

from __future__ import annotations

import textwrap
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from minilab.lab.plots_base import (
    INK,
    amount,
    canvas,
    in_style,
    listed,
    number,
    plural,
    sentences,
    source_words,
)
from minilab.sim.regime_cell import EQUAL, LOSES, NEITHER, VERDICTS, WINS, Cell, percent
from minilab.sim.regime_map import RegimeMap

FILLS = {WINS: "#8fb4ff", LOSES: "#f59e5b", EQUAL: "#f3f4f6", NEITHER: "#9ca3af"}
SYMBOLS = {WINS: "+", LOSES: "–", EQUAL: "=", NEITHER: "×"}
HATCHES = {NEITHER: "////"}
WITH_NUMBERS = 10  # columns; beyond that only the symbol fits a cell
TICKS = 12
METRIC_NAMES = {
    "goodput_per_gpu": "goodput per GPU",
    "goodput": "goodput",
    "attainment": "share of good requests",
    "throughput": "throughput",
}


@in_style
def plot_regime_map(found: RegimeMap) -> tuple[Figure, str]:
    """The map with its legend, and below it a caption that explains the boundary.

    Up to WITH_NUMBERS columns, each cell also says by how much of the better side A is ahead. The
    alternative text is ``alt_regime_map``.
    """
    width, height = len(found.x_values), len(found.y_values)
    fig, (ax,) = canvas(1, 1, (max(6.0, 2.6 + 0.62 * min(width, 12)), 2.6 + 0.36 * min(height, 20)))
    for j, i in product(range(height), range(width)):
        _draw_cell(ax, i, j, found.cells[j][i], numbers=width <= WITH_NUMBERS)
    _draw_boundary(ax, found)
    _ticks(ax, found)
    ax.set(xlim=(-0.5, width - 0.5), ylim=(-0.5, height - 0.5))
    ax.set(xlabel=found.x_name, ylabel=found.y_name)
    ax.set_title(f"{found.a_name} against {found.b_name}: {_metric(found)}", fontsize=11)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    words = {
        WINS: f"{found.a_name} wins",
        LOSES: f"{found.b_name} wins",
        EQUAL: "no difference",
        NEITHER: "neither serves",
    }
    shown = [
        Patch(fc=FILLS[v], hatch=HATCHES.get(v), ec=INK, lw=0.5, label=f"{SYMBOLS[v]}  {words[v]}")
        for v in VERDICTS
        if found.counts()[v]
    ]
    fig.legend(handles=shown, loc="outside upper left", ncols=2 if len(shown) > 2 else len(shown))
    lines = textwrap.wrap(caption_regime_map(found), int(fig.get_figwidth() * 14))
    fig.supxlabel("\n".join(lines), x=0.02, ha="left", fontsize=9)
    return fig, alt_regime_map(found)


def _draw_cell(ax: Axes, i: int, j: int, cell: Cell, *, numbers: bool) -> None:
    verdict = cell.verdict
    ax.add_patch(
        Rectangle(
            (i - 0.5, j - 0.5), 1, 1, fc=FILLS[verdict], hatch=HATCHES.get(verdict), ec="white"
        )
    )
    text = SYMBOLS[verdict]
    if numbers and cell.difference is not None and verdict in (WINS, LOSES):
        text = f"{text}\n{percent(cell.difference.value).lstrip('+-')}"
    ax.text(i, j, text, ha="center", va="center", color=INK, fontsize=9 if numbers else 8)


def _draw_boundary(ax: Axes, found: RegimeMap) -> None:
    """A line along every edge between a win and anything else."""
    wins = [[verdict == WINS for verdict in row] for row in found.verdicts]
    for j, row in enumerate(wins):
        for i, win in enumerate(row):
            if i + 1 < len(row) and win != row[i + 1]:
                ax.plot([i + 0.5] * 2, [j - 0.5, j + 0.5], color=INK, linewidth=2.5, linestyle="-")
            if j + 1 < len(wins) and win != wins[j + 1][i]:
                ax.plot([i - 0.5, i + 0.5], [j + 0.5] * 2, color=INK, linewidth=2.5, linestyle="-")


def _ticks(ax: Axes, found: RegimeMap) -> None:
    for axis, values in ((ax.xaxis, found.x_values), (ax.yaxis, found.y_values)):
        step = -(-len(values) // TICKS)
        at = range(0, len(values), step)
        axis.set_ticks(list(at), [number(values[k]) for k in at])


def caption_regime_map(found: RegimeMap) -> str:
    """What the symbols rest on, and where the boundary runs, in sentences for under the picture."""
    counts = found.counts()
    rule = f"a side wins where its {_metric(found)} is better by more than {_share(found.margin)}"
    if len(found.seeds) > 1:
        rule += (
            f" on average over {len(found.seeds)} seeds, and by more than their luck (95 %); "
            "elsewhere there is no difference that these seeds can tell"
        )
    told = [rule]
    if counts[NEITHER]:
        least = _share(found.least_attainment)
        told.append(f"neither serves where fewer than {least} of the requests are good on both")
    if 0 < counts[WINS] < sum(counts.values()):
        told.append(f"the thick line bounds the wins of {found.a_name}")
        told += boundary_words(found)
    return sentences([*told, *source_words(*found.data)])


def boundary_words(found: RegimeMap) -> list[str]:
    """Where along x side A wins, for the lowest, the middle and the highest y."""
    rows = sorted({0, len(found.y_values) // 2, len(found.y_values) - 1})
    return [
        f"at {amount(found.y_name, found.y_values[row])}, {found.a_name} wins {_where(found, row)}"
        for row in rows
    ]


def _where(found: RegimeMap, row: int) -> str:
    stretches = found.stretches(row)
    if not stretches:
        return "nowhere"
    if stretches == [(found.x_values[0], found.x_values[-1])]:
        return "everywhere"
    values = [(low,) if low == high else (low, high) for low, high in stretches]
    return listed([f"at {amount(found.x_name, *some)}" for some in values])


def alt_regime_map(found: RegimeMap) -> str:
    """The map in sentences: what spans it, how many points each way, extremes, boundary."""
    counts = found.counts()
    total = sum(counts.values())
    x = amount(found.x_name, found.x_values[0], found.x_values[-1])
    y = amount(found.y_name, found.y_values[0], found.y_values[-1])
    told = [
        f"regime map of {_metric(found)}, {found.a_name} against {found.b_name}, over {x} and {y}",
        f"of {plural(total, 'point')}, {found.a_name} wins at {counts[WINS]} and loses at "
        f"{counts[LOSES]}; there is no difference at {counts[EQUAL]}, and neither serves at "
        f"{counts[NEITHER]}",
    ]
    for verdict, what in ((WINS, "largest win"), (LOSES, "largest loss")):
        if extreme := _extreme(found, verdict):
            told.append(f"its {what} is {extreme}")
    if 0 < counts[WINS] < total:
        told += boundary_words(found)
    return sentences([*told, *source_words(*found.data)])


def _extreme(found: RegimeMap, verdict: str) -> str | None:
    places = [
        (abs(cell.difference.value), cell, x, y)
        for y, row in zip(found.y_values, found.cells, strict=True)
        for x, cell in zip(found.x_values, row, strict=True)
        if cell.verdict == verdict and cell.difference is not None
    ]
    if not places:
        return None
    share, cell, x, y = max(places, key=lambda place: place[0])
    values = (
        f" ({number(cell.a.value)} against {number(cell.b.value)})" if cell.a and cell.b else ""
    )
    at = f"{amount(found.x_name, x)} and {amount(found.y_name, y)}"
    return f"{_share(share)} of the better side{values}, at {at}"


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"


def _metric(found: RegimeMap) -> str:
    return METRIC_NAMES.get(found.metric, found.metric.replace("_", " "))
