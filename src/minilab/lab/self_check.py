"""Self-check: statements a learner ticks, each with a question whose number is computed here.

A page shows one chapter's list per cell. Without JavaScript the boxes can be ticked and the answers
unfold; the page's script keeps the ticks in the browser and compares a number that is typed in.
"""

from __future__ import annotations

import html
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Question:
    """One statement and its test.

    Attributes:
        key: its name, under which a browser keeps the tick; never given to another statement.
        says: the statement, "I can ...".
        asks: the question, with every number that it needs.
        value: computes the answer. unit: of the answer, "" for a plain number.
        how: the arithmetic in a sentence; ``{answer}`` stands for the answer.
        digits: significant digits shown. tolerance: share by which a typed answer may be off.
    """

    key: str
    says: str
    asks: str
    value: Callable[[], float]
    unit: str
    how: str
    digits: int = 3
    tolerance: float = 0.05

    def answer(self) -> str:
        """The answer as text, with its unit."""
        value = self.value()
        whole = abs(value) >= 10 ** (self.digits - 1)
        number = f"{value:,.0f}" if whole else f"{value:.{self.digits}g}"
        return f"{number} {self.unit}".strip()

    def as_html(self) -> str:
        """A list item; ``data-check`` is what the script needs."""
        data = {"key": self.key, "value": self.value(), "tolerance": self.tolerance}
        how = self.how.format(answer=self.answer())
        unit = f' data-unit="{html.escape(self.unit)}"' if self.unit else ""
        return (
            f'<li class="check" data-check="{html.escape(json.dumps(data))}"{unit}>'
            f'<label><input type="checkbox"> {html.escape(self.says)}</label>'
            f"<p>{html.escape(self.asks)}</p>"
            f"<details><summary>Answer</summary><p>{html.escape(how)}</p></details></li>"
        )


def chapters() -> dict[str, tuple[Question, ...]]:
    """Questions by page of the course, in reading order."""
    first = importlib.import_module("minilab.lab.self_check_serving")
    second = importlib.import_module("minilab.lab.self_check_models")
    found: dict[str, tuple[Question, ...]] = {**first.CHAPTERS, **second.CHAPTERS}
    return found


def checks(page: str) -> Any:
    """The list of one chapter as HTML for the end of a cell.

    Raises:
        KeyError: no chapter has this page.
    """
    items = "".join(question.as_html() for question in chapters()[page])
    text = f'<ul class="checks">{items}</ul>'
    return importlib.import_module("IPython.display").HTML(text)
