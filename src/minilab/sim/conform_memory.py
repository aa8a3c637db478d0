"""Memory: a KV cache that holds the names of texts instead of numbers, to see who reads what.

Each slot holds the name of the text up to and including its token: whose salt, which tokens from
the beginning on. Two slots have one name exactly if their KV would be equal. A step that reads a
slot with another name would compute nonsense on a GPU, where nothing complains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from minilab.core.request import RequestState
from minilab.facts.request import Request

Token = tuple[object, int]


class Work(NamedTuple):
    """What a step computes for one request: tokens ``start`` to ``end``, KV before it read."""

    request: RequestState
    start: int
    end: int


class WrongSlot(NamedTuple):
    """The first slot in which a step would read or write what it must not."""

    request: int
    position: int
    block: int
    found: str  # "nothing", "other text", "another salt", or "shared"


class Memory:
    """Slots of ``num_blocks`` blocks by name; 0 is a slot that nobody has written."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._size = block_size
        self._slots = [0] * (num_blocks * block_size)
        self._names: dict[tuple[int, Token], int] = {}
        self._parents: list[tuple[int, Token]] = [(0, ("", 0))]
        self._texts: dict[int, list[int]] = {}

    def name(self, request: RequestState, position: int) -> int:
        """The name of the text of ``request`` up to and including ``position``."""
        names = self._texts.setdefault(request.id, [])
        spec: Request = request.request  # type: ignore[assignment]
        while len(names) <= position:
            parent = names[-1] if names else self._intern(0, ((spec.cache_salt, spec.adapter), -1))
            names.append(self._intern(parent, _token(spec, len(names))))
        return names[position]

    def _intern(self, parent: int, token: Token) -> int:
        key = (parent, token)
        if key not in self._names:
            self._names[key] = len(self._parents)
            self._parents.append(key)
        return self._names[key]

    def run(self, work: Sequence[Work], tables: Iterable[Sequence[int]]) -> WrongSlot | None:
        """Read, then write what a step does; the first wrong slot, or None.

        ``tables``: all block tables there are. What a step computes can't be read in that step.
        """
        for item in work:
            for position in range(item.start):
                found = self._slots[self._at(item.request, position)]
                if found != self.name(item.request, position):
                    return self._wrong(item.request, position, found)
        holders: dict[int, int] = {}
        for table in tables:
            for block in table:
                holders[block] = holders.get(block, 0) + 1
        for request, start, end in work:
            for position in range(start, end):
                at, name = self._at(request, position), self.name(request, position)
                if holders[at // self._size] > 1 and self._slots[at] != name:
                    return WrongSlot(request.id, position, at // self._size, "shared")
                self._slots[at] = name
        return None

    def _at(self, request: RequestState, position: int) -> int:
        block, offset = divmod(position, self._size)
        return request.block_table[block] * self._size + offset

    def _wrong(self, request: RequestState, position: int, found: int) -> WrongSlot:
        block = request.block_table[position // self._size]
        if not found:
            return WrongSlot(request.id, position, block, "nothing")
        same = self._spelled(found)[1:] == self._spelled(self.name(request, position))[1:]
        return WrongSlot(request.id, position, block, "another salt" if same else "other text")

    def _spelled(self, name: int) -> list[Token]:
        """The tokens that a name stands for, the salt first."""
        tokens = []
        while name:
            name, token = self._parents[name]
            tokens.append(token)
        return tokens[::-1]


def _token(request: Request, position: int) -> Token:
    """Which token stands at ``position``: of a text that others may have, or of its own."""
    if position >= request.prompt_tokens:
        text = ("out", request.id) if request.output_content is None else request.output_content
        return text, position - request.prompt_tokens
    for content, length in request.prompt or ((("own", request.id), request.prompt_tokens),):
        if position < length:
            return content, position
        position -= length
    raise AssertionError("the segments of a prompt add up to its length")
