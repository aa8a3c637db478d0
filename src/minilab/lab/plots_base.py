"""What every plot needs: an empty figure in the course's style, and numbers as words.

Figures are made without pyplot: none is shown twice by a notebook, none has to be closed, and the
reader's own settings stay as they are.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from minilab.facts.runlog import RunLog
from minilab.lab.show import STYLE

P = ParamSpec("P")
T = TypeVar("T")

INK, QUIET, ALARM = "#1f2937", "#4b5563", "#b91c1c"
NAMES = {
    "ttft": "time to first token",
    "tpot": "mean time per output token",
    "itl": "p99 gap between tokens, per request",
    "stall": "largest gap between tokens, per request",
    "e2e": "time from arrival to last token",
    "queue": "time in the queue",
}
"""The words of METRICS for readers who meet them for the first time."""


def in_style(plot: Callable[P, T]) -> Callable[P, T]:
    """Run a plotting function under the course's style, and leave the reader's own as it is."""

    @functools.wraps(plot)
    def styled(*args: P.args, **kwargs: P.kwargs) -> T:
        with matplotlib.rc_context(fname=STYLE):
            return plot(*args, **kwargs)

    return styled


def canvas(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.0, 4.0), **more: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row. ``more`` goes to ``Figure.subplots``."""
    fig = Figure(figsize=size)
    return fig, list(fig.subplots(rows, columns, squeeze=False, **more).flat)


def time_axis(axis: Axis) -> None:
    """A logarithmic axis of seconds with readable ticks: 5 ms, 10 ms, ..., 1 s."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axis.set_minor_formatter(NullFormatter())


def legend_above(ax: Axes) -> None:
    """A legend on one line over the right end of the axes, where it hides nothing."""
    if ax.get_legend_handles_labels()[0]:
        legend = ax.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, ncols=4)
        for text in legend.get_texts():
            text.set_fontsize(9)


def source_words(*kinds: str | None) -> list[str]:
    """Whether the requests were made up in a trace's likeness: nobody should take them for it."""
    return ["the requests are a stand-in, not the trace"] if "stand-in" in kinds else []


def kind_of(log: RunLog) -> str | None:
    """Where a run's requests come from: "real", "stand-in", "synthetic", or None (not said)."""
    kind: str | None = (log.meta.get("data") or {}).get("kind")
    return kind


def seconds(value: float | None) -> str:
    """0.0631 -> "63 ms", 1.25 -> "1.2 s", 340 -> "340 s"; None or NaN -> "unavailable"."""
    if value is None or math.isnan(value):
        return "unavailable"
    return f"{digits(value * 1000, 2)} ms" if value < 0.9995 else f"{digits(value, 2)} s"


def percent(share: float | None) -> str:
    """0.9766 -> "98 %"; what is not all or nothing is not rounded to it."""
    if share is None:
        return "unavailable"
    value = 100 * share
    if 99.5 <= value < 100:
        return f"{math.floor(10 * value) / 10:.1f} %"
    return f"{value:.0f} %" if value >= 1 else f"{digits(value, 2)} %"


def digits(value: float, count: int = 3) -> str:
    """The number with ``count`` significant digits, whole ones in full: 1234.5 -> "1234"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(name: str, *values: Any) -> str:
    """A quantity and its value or range: ("rate (1/s)", 2, 8) -> "rate 2 to 8 1/s"."""
    match = re.fullmatch(r"(.*\S)\s*\((.*)\)", name)
    noun, unit = (match[1], f" {match[2]}") if match else (name, "")
    return f"{noun} {' to '.join(map(number, values))}{unit}"


def number(value: Any) -> str:
    """4096 -> "4,096", 0.125 -> "0.125"; words as they are."""
    if isinstance(value, float):
        return digits(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def plural(count: int, word: str) -> str:
    """1 request, 2 requests."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def sentences(parts: Iterable[str]) -> str:
    """Each with a capital letter and a full stop."""
    return " ".join(
        f"{part[0].upper()}{part[1:]}{'' if part.endswith('.') else '.'}" for part in parts
    )
