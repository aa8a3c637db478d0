"""Mtp: drafts with DeepSeek's own MTP module, the drafter that comes with the model.

The module was trained for one token ahead. For more it is run again on its own output, as vLLM
does: each further guess stands on a guess. It keeps latents of its own, request by request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.deepseek.attention import UpProjection, absorbed, expanded
from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.engine.spec.dice import DraftDice
from minilab.engine.spec.proposer import Draft, Drafting
from minilab.engine.spec.seen import SeenFeatures
from minilab.facts.errors import InputError

FIRST_ROOM = 64


@dataclass
class _Memory:
    """The module's cache of one request.

    Attributes:
        rows: [capacity, kv_lora_rank + rope].
        positions: of the tokens that the rows in use stand for, ascending.
    """

    rows: torch.Tensor
    positions: list[int] = field(default_factory=list)

    def cut(self, position: int) -> None:
        """Forget the rows from ``position`` on."""
        while self.positions and self.positions[-1] >= position:
            self.positions.pop()

    def append(self, positions: Sequence[int], rows: torch.Tensor) -> torch.Tensor:
        """Add rows; returns all in use."""
        start, end = len(self.positions), len(self.positions) + len(positions)
        while end > len(self.rows):
            self.rows = torch.cat((self.rows, torch.zeros_like(self.rows)))
        self.rows[start:end] = rows
        self.positions += positions
        return self.rows[:end]


class Mtp:
    """A ``Proposer`` for a DeepSeek whose checkpoint brings an MTP module.

    Args:
        target: the model that drafts are for.
        seed: of the draws for requests with a temperature.

    Raises:
        InputError: the checkpoint has no MTP module.
    """

    reads_hidden = True

    def __init__(self, target: DeepseekDecoder, seed: int = 0) -> None:
        if target.mtp is None:
            raise InputError(
                "this checkpoint has no MTP module (its layer is not in the files); "
                "draft with another proposer, as NGram"
            )
        self._target, self._module = target, target.mtp
        self._seen, self._dice = SeenFeatures(), DraftDice(seed)
        self._memories: dict[int, _Memory] = {}

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """See ``Proposer``."""
        self._seen.observe(batch, hidden)

    @torch.inference_mode()
    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """See ``Proposer``."""
        ready = [one for one in asked if one.most > 0 and one.id in self._seen]
        found: dict[int, list[int]] = {one.id: [] for one in ready}
        odds: dict[int, list[torch.Tensor]] = {one.id: [] for one in ready}
        features = self._catch_up(ready) if ready else torch.empty(0)
        while ready:
            logits = self._target.head(features).float()
            for one, row in zip(ready, logits, strict=True):
                found[one.id].append(self._dice.draw(one, row, odds[one.id]))
            longer = [len(found[one.id]) < one.most for one in ready]
            ready = [one for one, more in zip(ready, longer, strict=True) if more]
            if ready:
                features = features[torch.tensor(longer, device=features.device)]
                news = [found[one.id][-1:] for one in ready]
                places = [[len(one.tokens) - 2 + len(found[one.id])] for one in ready]
                features = self._run(ready, news, places, features)
        return {
            key: Draft(tokens, torch.stack(odds[key]) if odds[key] else None)
            for key, tokens in found.items()
        }

    def forget(self, request_id: int) -> None:
        """See ``Proposer``."""
        self._memories.pop(request_id, None)
        self._seen.forget(request_id)
        self._dice.forget(request_id)

    def _catch_up(self, asked: Sequence[Drafting]) -> torch.Tensor:
        """Read the true features of tokens that stayed; the features after each text's last."""
        places: list[list[int]] = []
        features: list[torch.Tensor] = []
        for one in asked:
            own, rows = self._seen.take(one)
            self._memory(one.id).cut(own[0])  # what stood on guesses
            places.append(own)
            features += rows
        nexts = [[one.tokens[p + 1] for p in own] for one, own in zip(asked, places, strict=True)]
        return self._run(asked, nexts, places, self._target.normed(torch.cat(features)))

    def _run(
        self,
        asked: Sequence[Drafting],
        tokens: Sequence[Sequence[int]],
        places: Sequence[list[int]],
        features: torch.Tensor,
    ) -> torch.Tensor:
        """Read tokens with the features before them; the features after each request's last."""
        target, device = self._target, features.device
        flat = torch.tensor([token for own in tokens for token in own], device=device)
        at = torch.tensor([place for own in places for place in own], device=device)
        x = self._module.join(target.embedding[flat], features)
        step = _Step([self._memory(one.id) for one in asked], places)
        tables = target.rotary.tables(at)
        x = self._module.layer(x, step, step.rows, target.rotary, tables)
        ends = torch.tensor([len(own) for own in places], device=device).cumsum(0)
        return self._module.feature(x[ends - 1])

    def _memory(self, request_id: int) -> _Memory:
        if request_id not in self._memories:
            shape = (FIRST_ROOM, self._target.config.cache_width)
            rows = torch.zeros(shape, dtype=self._target.dtype, device=self._target.device)
            self._memories[request_id] = _Memory(rows)
        return self._memories[request_id]


class _Step:
    """A ``LatentStep`` over memories; it has no cache but theirs."""

    def __init__(self, memories: Sequence[_Memory], places: Sequence[list[int]]) -> None:
        self._memories, self._places = memories, places
        self.rows = memories[0].rows

    def __call__(
        self, query: torch.Tensor, latent: torch.Tensor, up: UpProjection, cache: torch.Tensor
    ) -> torch.Tensor:
        """See ``LatentStep``; ``cache`` is not read."""
        scale, start, out = query.shape[-1] ** -0.5, 0, []
        for memory, own in zip(self._memories, self._places, strict=True):
            end = start + len(own)
            seen = memory.append(own, latent[start:end])
            out.append(_attend(query[start:end], memory.rows, seen, up, scale))
            start = end
        return torch.cat(out)


def _attend(
    query: torch.Tensor, rows: torch.Tensor, seen: torch.Tensor, up: UpProjection, scale: float
) -> torch.Tensor:
    """One token absorbed, as a sequence of one page; several expanded."""
    if len(query) > 1:
        return expanded(query, seen, up, scale)
    table = torch.zeros((1, 1), dtype=torch.int32, device=rows.device)
    length = torch.tensor([len(seen)], dtype=torch.int32, device=rows.device)
    return absorbed(query, rows[None], table, length, up, scale)
