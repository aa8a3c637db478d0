"""The selector as sliders in a notebook: the page's parameters, the page's numbers.

The controls are drawn from ``parameters.json`` and every number comes from ``levers.report``, so
that a notebook cannot say anything else than the page.
"""

from __future__ import annotations

import html
import importlib
import math
from typing import Any

from minilab.judge.selector.levers import seconds
from minilab.judge.selector.parameters import choices, parameters, settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import tables
from minilab.lab.parameter_controls import control, rounded

_BAR = 160
"""Pixels of a bar that is full."""


class SelectorWidget:
    """Sliders and the table that follows them.

    Attributes:
        controls: one ipywidgets control per parameter, by name.
        told: the ipywidgets.HTML that holds the bottleneck, the bars and the recommendation.
    """

    def __init__(self, **given: Any) -> None:
        """Start from these values, the others from their defaults.

        Raises:
            InputError: an unknown name, or a value that is out of range.
        """
        start = settings_of(given).values
        self._widgets: Any = importlib.import_module("ipywidgets")
        self.controls: dict[str, Any] = {
            row["name"]: control(self._widgets, row, start[row["name"]], choices(row))
            for row in parameters()
        }
        self.told: Any = self._widgets.HTML()
        for one in self.controls.values():
            one.observe(self._follow, names="value")
        self._follow(None)

    def values(self) -> dict[str, Any]:
        """What is set, rounded as the page rounds it."""
        return {row["name"]: rounded(row, self.controls[row["name"]].value) for row in parameters()}

    def report(self) -> dict[str, Any]:
        """``levers.report`` of what is set."""
        return report(tables(), settings_of(self.values()))

    def show(self) -> Any:
        """The whole as one widget: six controls, the rest folded, the table below."""
        first = [self.controls[row["name"]] for row in parameters() if row.get("first")]
        rest = [self.controls[row["name"]] for row in parameters() if not row.get("first")]
        folded = self._widgets.Accordion([self._widgets.VBox(rest)], selected_index=None)
        folded.set_title(0, "More")
        return self._widgets.VBox([*first, folded, self.told])

    def text(self) -> str:
        """The same in lines, for a page without widgets."""
        told = self.report()
        if not told["fits"]:
            return _too_large(told)
        bars = [f"{_words(name):<17} {value:.2f}" for name, value in told["bars"]]
        return "\n".join([f"bottleneck: {_words(told['bottleneck'])}", *bars, *_lines(told)])

    def _follow(self, _: Any) -> None:
        told = self.report()
        if not told["fits"]:
            self.told.value = f"<p>{html.escape(_too_large(told))}</p>"
            return
        rows = "".join(_row(name, value) for name, value in told["bars"])
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in _lines(told))
        self.told.value = (
            f"<p>Bottleneck: <b>{_words(told['bottleneck'])}</b></p>"
            f"<table>{rows}</table><ul>{lines}</ul>"
        )


def _row(name: str, value: float) -> str:
    wide = round(_BAR * min(1.0, value))
    shown = "no bound" if value == math.inf else f"{value:.2f}"
    bar = f'<div style="width:{wide}px;height:0.8em;background:currentColor"></div>'
    return (
        f'<tr><th scope="row" style="text-align:left">{_words(name)}</th>'
        f'<td style="width:{_BAR}px">{bar}</td><td>{shown}</td></tr>'
    )


def _lines(told: dict[str, Any]) -> list[str]:
    used = ", ".join(_words(row[0]) for row in told["stack"]) or "change nothing"
    lines = [
        f"{told['layout']}: TTFT {seconds(told['ttft'])}, ITL {seconds(told['itl'])}",
        f"goodput per GPU {told['goodput_per_gpu']:.3g} requests/s, "
        f"{told['recommended']['goodput_per_gpu']:.3g} with the recommendation: {used}",
    ]
    lines += [f"use {_words(name)}: {why}" for name, why, _ in told["stack"]]
    lines += [f"leave {_words(name)}: {why}" for name, why in told["avoid"] if "it loses" in why]
    return [*lines, told["says"]]


def _too_large(told: dict[str, Any]) -> str:
    size = f"{told['weights_gb']:.0f} GB of weights"
    return f"The model does not fit: {size}; choose more GPUs, a larger GPU or a smaller model."


def _words(name: str) -> str:
    return name.replace("_", " ")
