"""Controls drawn from a list of parameters: the sliders of a notebook are those of the page.

A parameter is a row of a ``parameters.json``: name, label, unit, help, default, and either a range
with its scale or a kind of word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

STEPS = 400
"""Positions of a slider, as in the page."""


def rounded(row: dict[str, Any], value: Any) -> Any:
    """A control's value as the page would give it: whole where it counts things, else three
    digits."""
    if row.get("kind"):
        return value
    if _is_whole(row):
        number = float(round(value))
    else:
        number = float(f"{value:.3g}")
    return min(max(number, row["min"]), row["max"])


def control(widgets: Any, row: dict[str, Any], value: Any, words: Sequence[str]) -> Any:
    """One control of ``ipywidgets`` (given as ``widgets``): a choice of ``words``, or a slider."""
    look = {
        "description": row["label"],
        "tooltip": row["help"],
        "style": {"description_width": "11em"},
        "layout": {"width": "30em"},
    }
    if words:
        return widgets.Dropdown(options=list(words), value=value, **look)
    if row["scale"] == "log":
        low, high = math.log10(row["min"]), math.log10(row["max"])
        look["readout_format"] = ".0f" if _is_whole(row) else ".3g"
        step = (high - low) / STEPS
        return widgets.FloatLogSlider(value=value, min=low, max=high, step=step, **look)
    step = 1 if row["scale"] == "whole" else (row["max"] - row["min"]) / STEPS
    return widgets.FloatSlider(
        value=value, min=row["min"], max=row["max"], step=step, readout_format=".3g", **look
    )


def _is_whole(row: dict[str, Any]) -> bool:
    return bool(row.get("whole")) or row["scale"] == "whole" or row["unit"] == "tokens"
