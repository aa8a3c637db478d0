"""NGram: prompt lookup. What followed these words before may follow them again.

It costs a dictionary look-up and is unbeaten where a text quotes itself: editing, copying,
summarising, code. (Saxena 2023; vLLM's method "ngram", SGLang's NGRAM.)
"""

from __future__ import annotations

from minilab.engine.spec.proposer import Drafting, TextProposer
from minilab.facts.errors import InputError

RECENT = 4
"""Places looked at, the newest first, for one that has enough text behind it."""


class NGram(TextProposer):
    """Looks up the last n tokens in the text so far, the longest n first.

    Args:
        longest, shortest: tokens that must match (vLLM's prompt_lookup_max and _min).

    Raises:
        InputError: shortest below 1 or above longest.
    """

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise InputError(
                f"n-grams of {shortest} to {longest} tokens; shortest must be 1 or more, and at "
                "most longest"
            )
        self._sizes = range(longest, shortest - 1, -1)
        self._index: dict[int, _Index] = {}

    def continuation(self, asked: Drafting) -> list[int]:
        """What followed the newest earlier place with the longest match."""
        index = self._index.get(asked.id)
        if index is None:
            index = self._index[asked.id] = _Index(self._sizes)
        index.extend(asked.tokens)
        return index.look_up(asked.tokens, asked.most)

    def forget(self, request_id: int) -> None:
        """Drop the index of a request."""
        self._index.pop(request_id, None)


class _Index:
    """Where each n-gram of one text ended, by n-gram; grows with the text."""

    def __init__(self, sizes: range) -> None:
        self._sizes = sizes
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._seen = 0

    def extend(self, tokens: list[int]) -> None:
        """Index what ends before the last token: what follows it is not known yet."""
        for end in range(max(self._seen, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._ends.setdefault(tuple(tokens[end - size : end]), []).append(end)
        self._seen = max(self._seen, len(tokens))

    def look_up(self, text: list[int], most: int) -> list[int]:
        """Up to ``most`` tokens; of the newest places, the first that has so many behind it."""
        for size in self._sizes:
            if size >= len(text):
                continue
            ends = self._ends.get(tuple(text[-size:]))
            if ends:
                found = [text[end : end + most] for end in ends[-1 : -RECENT - 1 : -1]]
                return max(found, key=len)  # the newest of the longest
        return []
