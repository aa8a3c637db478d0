"""StopStrings: ends a text at a stop string, and shows no part of one before it is sure.

Tokens cut text anywhere: "###" may come as "#" and "##". So the end of the text is held back for
as long as it may still grow into a stop string. The result does not depend on the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence

from minilab.facts.errors import InputError


class StopStrings:
    """Watches one growing text.

    The stop string that is complete first ends the text; of several that end at the same place, the
    longest.

    Attributes:
        found: the stop string that ended the text, or ``None``.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        """``include`` leaves the stop string in the text."""
        if any(not stop for stop in stops):
            raise InputError("a stop string is empty; every text would end before it begins")
        self._stops = sorted(stops, key=len, reverse=True)
        self._include = include
        self._held = ""
        self.found: str | None = None

    def push(self, piece: str) -> str:
        """The part of the text that may be shown now that ``piece`` has come."""
        if not self._stops or not piece:
            return piece
        if self.found is not None:
            return ""
        text = self._held + piece
        ends = [(text.find(stop) + len(stop), stop) for stop in self._stops if stop in text]
        if ends:
            end, self.found = min(ends, key=lambda pair: pair[0])  # the first of equals is longest
            self._held = ""
            return text[: end if self._include else end - len(self.found)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, once nothing can follow any more."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Longest end of ``text`` with which ``stop`` begins, short of all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
