"""What every plot needs: an empty figure in the course's style, and numbers as words.

Figures are made without pyplot: none is shown twice by a notebook, none has to be closed, and the
reader's own settings stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minilab.lab.show import STYLE

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


def canvas(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.0, 4.0), **more: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row. ``more`` goes to ``Figure.subplots``."""
    with matplotlib.rc_context(fname=STYLE):
        fig = Figure(figsize=size)
        axes = fig.subplots(rows, columns, squeeze=False, **more)
    return fig, list(axes.flat)


def seconds(value: float | None) -> str:
    """0.0631 -> "63 ms", 1.25 -> "1.2 s", 340 -> "340 s"; None or NaN -> "unavailable"."""
    if value is None or np.isnan(value):
        return "unavailable"
    return f"{digits(value * 1000, 2)} ms" if value < 0.9995 else f"{digits(value, 2)} s"


def percent(share: float | None) -> str:
    """0.9766 -> "98 %"; what is not all or nothing is not rounded to it."""
    if share is None:
        return "unavailable"
    value = 100 * share
    return f"{value:.0f} %" if value in (0, 100) or 1 <= value < 99.5 else f"{digits(value, 3)} %"


def digits(value: float, count: int = 3) -> str:
    """The number with ``count`` significant digits, whole ones in full: 1234.5 -> "1234"."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    places = max(0, count - 1 - int(np.floor(np.log10(abs(value)))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def plural(count: int, word: str) -> str:
    """1 request, 2 requests."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
