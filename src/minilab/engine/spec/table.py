"""Table: a static n-gram table counted from other texts. No network, no training, no state.

It is the baseline for learned drafters: what a table of the same training text finds, a network
must beat before its cost is worth anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from minilab.engine.spec.learned import read_drafter
from minilab.engine.spec.proposer import Drafting, TextProposer
from minilab.facts.errors import InputError


class Table(TextProposer):
    """The most frequent successor of the last n tokens, the longest known n first.

    Args:
        successors: next token by n-gram, of 1 to ``longest`` tokens.
    """

    def __init__(self, successors: dict[tuple[int, ...], int]) -> None:
        self.successors = successors
        self._longest = max(map(len, successors), default=0)

    def continuation(self, asked: Drafting) -> list[int]:
        """Goes from successor to successor."""
        tail = asked.tokens[-self._longest :]
        found: list[int] = []
        while len(found) < asked.most:
            token = self._next(tail)
            if token is None:
                break
            found.append(token)
            tail = [*tail, token][-self._longest :]
        return found

    def _next(self, tail: Sequence[int]) -> int | None:
        for size in range(min(self._longest, len(tail)), 0, -1):
            token = self.successors.get(tuple(tail[-size:]))
            if token is not None:
                return token
        return None

    @classmethod
    def counted(cls, texts: Iterable[Sequence[int]], longest: int = 4, at_least: int = 2) -> Table:
        """Count ``texts``; long n-grams are kept if seen ``at_least`` times, single tokens always.

        A long n-gram whose shorter tail predicts the same token is left out: it adds nothing.
        """
        counts: dict[tuple[int, ...], Counter[int]] = {}
        for text in texts:
            tokens = list(text)
            for end in range(1, len(tokens)):
                for size in range(1, min(longest, end) + 1):
                    counts.setdefault(tuple(tokens[end - size : end]), Counter())[tokens[end]] += 1
        chosen: dict[tuple[int, ...], int] = {}
        for gram in sorted(counts, key=len):
            token, times = max(counts[gram].items(), key=lambda item: (item[1], -item[0]))
            if len(gram) == 1 or times >= at_least:
                tails = (chosen.get(gram[start:]) for start in range(1, len(gram)))
                if next((known for known in tails if known is not None), None) != token:
                    chosen[gram] = token
        return cls(chosen)

    def save(self, path: str | Path) -> None:
        """Write the table as safetensors: n-grams padded in front with -1, and successors."""
        from safetensors.torch import save_file

        grams = sorted(self.successors, key=lambda gram: (len(gram), gram))
        rows = [[-1] * (self._longest - len(gram)) + [*gram] for gram in grams]
        save_file(
            {
                "grams": torch.tensor(rows, dtype=torch.int32),
                "successors": torch.tensor(
                    [self.successors[gram] for gram in grams], dtype=torch.int32
                ),
            },
            path,
        )

    @classmethod
    def load(cls, path: str | Path) -> Table:
        """A table that ``save`` wrote.

        Raises:
            InputError: no such file, or not one of a table.
        """
        found = read_drafter(path)
        if not {"grams", "successors"} <= found.keys():
            raise InputError(f"{path}: no n-gram table; it has no tensors grams and successors")
        rows, tokens = found["grams"].tolist(), found["successors"].tolist()
        grams = (tuple(token for token in row if token >= 0) for row in rows)
        return cls(dict(zip(grams, tokens, strict=True)))
