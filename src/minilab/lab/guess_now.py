"""Guess now: three workloads whose bottleneck a reader names, before the course and after it.

The answers are the selector's, computed when a page is built; both pages show the same cell.
"""

from __future__ import annotations

import html
import importlib
import math
from dataclasses import dataclass
from typing import Any

from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import tables
from minilab.judge.selector.verdict import BARS


@dataclass(frozen=True)
class Guess:
    """question: the workload in words; given: the same as the selector's settings."""

    question: str
    given: tuple[tuple[str, float | str], ...]

    def bars(self) -> dict[str, float]:
        """The selector's bars, longest first."""
        told = report(tables(), settings_of(dict(self.given)))
        return dict(sorted(told["bars"], key=lambda row: -row[1]))

    def answer(self) -> str:
        """The bottleneck that the selector names."""
        return str(report(tables(), settings_of(dict(self.given)))["bottleneck"])


GUESSES = (
    Guess(
        "One instance. 4 requests per second, prompts of 2,000 tokens, answers of 500.",
        (("rate", 4), ("prompt", 2000), ("output", 500)),
    ),
    Guess(
        "One instance computes prompts, a second one answers; 25-gigabit Ethernet lies between "
        "them. 1 request per second, prompts of 8,000 tokens, answers of 200.",
        (
            ("rate", 1),
            ("prompt", 8000),
            ("output", 200),
            ("gpus", 2),
            ("layout", "split"),
            ("link", "ethernet-25"),
        ),
    ),
    Guess(
        "One instance. 1 request per second, prompts of 500 tokens, answers of 8,000.",
        (("rate", 1), ("prompt", 500), ("output", 8000)),
    ),
)


def guess_now() -> Any:
    """The questions as HTML for the end of a cell, each with its folded answer."""
    return importlib.import_module("IPython.display").HTML(as_html())


def as_html() -> str:
    """The same as text."""
    choices = ", ".join(_words(name) for name in BARS)
    rows = "".join(_row(guess) for guess in GUESSES)
    return f"<p>Each time, choose one: {choices}.</p><ol>{rows}</ol>"


def _row(guess: Guess) -> str:
    bars = ", ".join(f"{_words(name)} {_shown(value)}" for name, value in guess.bars().items())
    return (
        f"<li><p>{html.escape(guess.question)}</p><details><summary>Answer</summary>"
        f"<p><strong>{_words(guess.answer())}</strong>. Of each resource is taken: {bars}.</p>"
        "</details></li>"
    )


def _shown(value: float) -> str:
    return "without bound" if value == math.inf else f"{value:.2f}"


def _words(name: str) -> str:
    return {"kv_capacity": "KV capacity", "kv_transfer": "KV transfer"}.get(
        name, name.replace("_", " ")
    )
