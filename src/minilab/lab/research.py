"""The research map: which works answer which problem, read from one data file (research.json).

Two pages are drawn from it, the map itself and the last column of the decision table, so that a
work is described once. Pages and sections are named as the site names them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Line:
    """One of the six threads. grasp: what to take away from all of its works."""

    key: str
    title: str
    grasp: str


@dataclass(frozen=True)
class Product:
    """What a work is called in a server. url: "" where no single page is named."""

    name: str
    version: str
    url: str


@dataclass(frozen=True)
class Entry:
    """One work.

    Attributes:
        id: its anchor on the map. line: key of its ``Line``. bib: key in references.bib.
        kind: paper, docs or code. by: whose work, in words; the authors stand in the bibliography.
        main: the main line to grasp.
        bottleneck, cost, layer: answers to the three questions.
        here: documents of the site, as ``book/page`` or ``book/page#section``.
        code: files of this repository.
        rows: keys of the decision table's rows for which to read it.
        order: place in the core reading, 0 outside of it. minutes: of a first reading, else 0.
    """

    id: str
    line: str
    title: str
    kind: str
    by: str
    year: int
    bib: str
    main: str
    bottleneck: str
    cost: str
    layer: str
    here: tuple[str, ...]
    code: tuple[str, ...]
    production: tuple[Product, ...]
    rows: tuple[str, ...]
    order: int
    minutes: int


@cache
def _data() -> dict[str, Any]:
    place = files("minilab.lab") / "research.json"
    data: dict[str, Any] = json.loads(place.read_text("utf-8"))
    return data


def looked_at() -> str:
    """When the pages of the production column were read."""
    return str(_data()["looked_at"])


@cache
def lines() -> tuple[Line, ...]:
    """The threads, in the order of the course."""
    return tuple(Line(**line) for line in _data()["lines"])


@cache
def entries() -> tuple[Entry, ...]:
    """Every work, thread by thread."""
    return tuple(_entry(dict(entry)) for entry in _data()["entries"])


def _entry(data: dict[str, Any]) -> Entry:
    core = data.pop("core") or {"order": 0, "minutes": 0}
    products = [
        Product(one["name"], one["version"], one.get("url", "")) for one in data.pop("production")
    ]
    lists: dict[str, Any] = {name: tuple(data.pop(name)) for name in ("here", "code", "rows")}
    return Entry(**(data | lists | core), production=tuple(products))


def entries_of(line: str) -> tuple[Entry, ...]:
    """The works of one thread.

    Raises:
        KeyError: no such thread.
    """
    if line not in {one.key for one in lines()}:
        raise KeyError(line)
    return tuple(entry for entry in entries() if entry.line == line)


def core() -> tuple[Entry, ...]:
    """The core reading, in its order."""
    return tuple(sorted((one for one in entries() if one.order), key=lambda one: one.order))


def entries_for(row: str) -> tuple[Entry, ...]:
    """The works for one row of the decision table, core reading first; empty where none helps."""
    found = [entry for entry in entries() if row in entry.rows]
    return tuple(sorted(found, key=lambda entry: (entry.order == 0, entry.order)))
