"""DraftModel: a smaller model of the same vocabulary guesses, with a KV cache of its own.

It reads every token twice over the life of a text: once when it guesses it, or, where the target
decided otherwise, once more when it catches up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from minilab.engine.batch import Piece, StepBatch
from minilab.engine.families import Model
from minilab.engine.spec.dice import DraftDice
from minilab.engine.spec.proposer import Draft, Drafting


@dataclass
class _Cached:
    """Tokens whose KV the draft model holds, and where."""

    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


class DraftModel:
    """A ``Proposer``. Requests that find no room in its pool get no drafts.

    Args:
        model: any decoder of the target's vocabulary; its pool is used by nobody else.
        seed: of the draws for requests with a temperature; their odds are handed on, so that the
            acceptance rule can weigh them.
    """

    reads_hidden = False

    def __init__(self, model: Model, seed: int = 0) -> None:
        self._model = model
        self._size = model.kv_cache.shape[3]
        self._free = list(range(model.kv_cache.shape[2]))
        self._cached: dict[int, _Cached] = {}
        self._dice = DraftDice(seed)

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """Nothing to see."""

    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """See ``Proposer``."""
        ready = [one for one in asked if one.most > 0 and self._make_room(one)]
        if not ready:
            return {}
        found: dict[int, list[int]] = {one.id: [] for one in ready}
        odds: dict[int, list[torch.Tensor]] = {one.id: [] for one in ready}
        news = [self._catch_up(one) for one in ready]
        while ready:
            logits = self._read(ready, news)
            for one, row in zip(ready, logits, strict=True):
                found[one.id].append(self._dice.draw(one, row, odds[one.id]))
            ready = [one for one in ready if len(found[one.id]) < one.most]
            news = [found[one.id][-1:] for one in ready]
        return {
            key: Draft(tokens, torch.stack(odds[key]) if odds[key] else None)
            for key, tokens in found.items()
        }

    def forget(self, request_id: int) -> None:
        """Take the blocks of a request back."""
        cached = self._cached.pop(request_id, None)
        if cached is not None:
            self._free += cached.blocks
        self._dice.forget(request_id)

    def _make_room(self, one: Drafting) -> bool:
        """Blocks for the text and its drafts; False if there are not enough."""
        cached = self._cached.setdefault(one.id, _Cached())
        need = -(-(len(one.tokens) + one.most) // self._size) - len(cached.blocks)
        if need > len(self._free):
            self.forget(one.id)
            return False
        for _ in range(need):
            cached.blocks.append(self._free.pop())
        return True

    def _catch_up(self, one: Drafting) -> list[int]:
        """Drop what the target decided otherwise; returns the tokens to read, at least the last."""
        cached = self._cached[one.id]
        same = min(len(cached.tokens), len(one.tokens) - 1)
        if cached.tokens[:same] != one.tokens[:same]:
            same = next(i for i in range(same) if cached.tokens[i] != one.tokens[i])
        del cached.tokens[same:]
        return one.tokens[same:]

    def _read(self, asked: Sequence[Drafting], news: Sequence[list[int]]) -> torch.Tensor:
        """One forward pass; logits after each request's last new token."""
        pieces = []
        for one, tokens in zip(asked, news, strict=True):
            cached = self._cached[one.id]
            pieces.append(Piece(tokens, len(cached.tokens), cached.blocks, 1))
            cached.tokens += tokens
        return self._model.forward(StepBatch.laid_out(pieces, self._size, self._model.device))
