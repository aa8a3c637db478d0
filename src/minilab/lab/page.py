"""Page: what the executed pages of the book share, so that numbers in prose are computed.

``say("name", text)`` stores a text for ``{glue}`` in the prose; ``table`` draws rows that come from
a run. Neither is of use in a lab.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Words(str):
    """A text that shows itself without quotes where a page glues it in."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Links:
    """A cell of ``table`` that holds links: (text, address relative to the page) each."""

    pairs: tuple[tuple[str, str], ...]

    def as_html(self) -> str:
        """The links with commas between them."""
        return ", ".join(
            f'<a href="{html.escape(address)}">{html.escape(text)}</a>'
            for text, address in self.pairs
        )


def say(name: str, text: object) -> None:
    """Store ``text`` under ``name`` for the prose of this page (needs myst-nb)."""
    importlib.import_module("myst_nb").glue(name, Words(text), display=False)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> Any:
    """An HTML table for the end of a cell. The first ``words`` columns are text, the rest numbers.

    Cells are escaped; ``str`` of each value is shown, so format numbers before. ``Links`` are drawn
    as such.
    """

    def inner(value: object) -> str:
        return value.as_html() if isinstance(value, Links) else html.escape(str(value))

    def line(values: Sequence[object], tag: str) -> str:
        cells = (
            f'<{tag} class="{"words" if i < words else "number"}">{inner(v)}</{tag}>'
            for i, v in enumerate(values)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    text = f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"
    return importlib.import_module("IPython.display").HTML(text)
