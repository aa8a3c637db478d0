"""Node: a value of a JSON file that knows where it stands, so that a refusal can say so.

Readers walk a file through nodes and never touch raw values unchecked: what is missing, of the
wrong kind or out of range is refused there, in one line with file, place, value, limit, way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from minilab.facts.arrays import FloatArray, IntArray
from minilab.facts.errors import InputError

MAX_SPAN = 1e7
"""Seconds that a latency or a gap may last (116 days); above, it is taken for another unit."""
MAX_CLOCK = 1e11
"""Seconds that a clock may show (today's epoch time in milliseconds is already above)."""
MAX_TOKENS = 10_000_000
MEND = "mend it, or make the file again"


def shown(value: Any) -> str:
    """A value for a message: short, on one line, plain ASCII."""
    if isinstance(value, (list, dict)):
        what = "a list" if isinstance(value, list) else "an object"
        return f"{what} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of about {value.bit_length() * 3 // 10} digits"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Node:
    """``value`` stands in ``file`` at ``place``: the keys that lead there, such as "ttfts[3]"."""

    file: str
    place: str
    value: Any

    def refuse(self, limit: str, way_out: str = MEND, given: str | None = None) -> NoReturn:
        """Raise the InputError for this value, shown as ``given`` says or in short."""
        place = self.place.removesuffix(": ")
        where = f"{self.file}:{place}" if place else self.file
        raise InputError(f"{where}: {given or shown(self.value)}; {limit}; {way_out}")

    def _child(self, key: str | int, value: Any) -> Node:
        if isinstance(key, int):
            return Node(self.file, f"{self.place}[{key}]", value)
        dot = "." if self.place and not self.place.endswith(": ") else ""
        return Node(self.file, f"{self.place}{dot}{key}", value)

    def get(self, key: str, way_out: str = MEND) -> Node:
        """The value of a key that must be there."""
        if not isinstance(self.value, dict) or key not in self.value:
            self.refuse(f"must be an object with {key!r}", way_out)
        return self._child(key, self.value[key])

    def find(self, *keys: str) -> Node | None:
        """The value under these keys, one inside the other; None if absent or null."""
        node = self
        for key in keys:
            if not isinstance(node.value, dict):
                node.refuse(f"must be an object with {key!r}")
            if node.value.get(key) is None:
                return None
            node = node._child(key, node.value[key])
        return node

    def items(self) -> Iterator[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            self.refuse("must be a list")
        for i, value in enumerate(self.value):
            yield self._child(i, value)

    def size(self, wanted: int | None = None, other: str = "") -> int:
        """Elements in a list: as many as ``other`` has, if ``wanted`` is given."""
        if not isinstance(self.value, list):
            self.refuse("must be a list")
        if wanted is not None and len(self.value) != wanted:
            self.refuse(f"must have {wanted} values as {other} has, one per request")
        return len(self.value)

    def text(self) -> str:
        """Text."""
        if not isinstance(self.value, str):
            self.refuse("must be text")
        return self.value

    def number(self, low: float = 0.0, high: float = MAX_SPAN, unit: str = "seconds") -> float:
        """A finite number within [low, high]."""
        if type(self.value) not in (int, float) or not low <= self.value <= high:
            self.refuse(f"must be {unit} from {low:g} to {high:g}")
        return float(self.value)

    def count(self, high: int = MAX_TOKENS) -> int:
        """A whole number within [0, high]."""
        if type(self.value) is not int or not 0 <= self.value <= high:
            self.refuse(f"must be a whole number from 0 to {high}")
        return int(self.value)

    def numbers(self, low: float = 0.0, high: float = MAX_SPAN) -> FloatArray:
        """A list of finite seconds within [low, high], float64."""
        self._each((int, float), low, high, f"must be seconds from {low:g} to {high:g}")
        return np.array(self.value, dtype=np.float64)

    def counts(self, high: int = MAX_TOKENS) -> IntArray:
        """A list of whole numbers within [0, high], int64."""
        self._each((int,), 0, high, f"must be a whole number from 0 to {high}")
        return np.array(self.value, dtype=np.int64)

    def texts(self) -> list[str]:
        """A list of texts."""
        self.size()
        return [value if isinstance(value, str) else self._item(i) for i, value in self._pairs()]

    def _pairs(self) -> list[tuple[int, Any]]:
        return list(enumerate(self.value))

    def _item(self, i: int) -> NoReturn:
        self._child(i, self.value[i]).refuse("must be text")

    def _each(self, kinds: tuple[type, ...], low: float, high: float, limit: str) -> None:
        values = self.value
        self.size()
        if set(map(type, values)) <= set(kinds):  # True is of type bool, which is no number here
            smallest, largest = min(values, default=low), max(values, default=low)
            if low <= smallest and largest <= high and not any(v != v for v in values):
                return
        for i, value in enumerate(values):
            if type(value) not in kinds or not low <= value <= high:
                self._child(i, value).refuse(limit)
