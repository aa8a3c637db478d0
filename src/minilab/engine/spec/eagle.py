"""Eagle: drafts with a one-layer feature drafter that keeps its own KV.

After each step the target's true features replace what the drafter had guessed of them; then it
runs ahead on its own. Its KV is one layer's, so it is kept request by request, without pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

from minilab.engine.batch import StepBatch
from minilab.engine.linear import Linear
from minilab.engine.model import Decoder
from minilab.engine.spec.eagle_layer import MATRICES, NORMS, EagleLayer, shapes
from minilab.engine.spec.learned import check_shapes, read_drafter
from minilab.engine.spec.proposer import Draft, Drafting
from minilab.engine.spec.seen import SeenFeatures


@dataclass
class _Memory:
    """What the drafter keeps of one request.

    Attributes:
        positions: of the KV entries, ascending. Tokens from the prefix cache have none: the target
            did not compute them, so nobody saw their features.
        keys, values: [kv_heads, capacity, head_dim].
    """

    keys: torch.Tensor
    values: torch.Tensor
    positions: list[int] = field(default_factory=list)

    def cut(self, position: int) -> None:
        """Forget the entries from ``position`` on."""
        while self.positions and self.positions[-1] >= position:
            self.positions.pop()

    def append(self, positions: Sequence[int], key: torch.Tensor, value: torch.Tensor) -> None:
        """Add entries [n, kv_heads, head_dim]."""
        start = len(self.positions)
        end = start + len(positions)
        while end > self.keys.shape[1]:
            self.keys, self.values = (
                torch.cat((part, torch.empty_like(part)), dim=1)
                for part in (self.keys, self.values)
            )
        self.keys[:, start:end] = key.transpose(0, 1)
        self.values[:, start:end] = value.transpose(0, 1)
        self.positions += positions


class Eagle:
    """A ``Proposer`` that runs ahead on guessed features.

    Args:
        target: the model whose features and embedding it reads.
        weights: as ``eagle_layer.shapes``, and ``vocabulary``: int[n], the tokens it may guess.

    Raises:
        InputError: weights that do not fit the target.
    """

    reads_hidden = True

    def __init__(self, target: Decoder, weights: Mapping[str, torch.Tensor]) -> None:
        check_shapes(weights, shapes(target.config))
        self._target = target
        dtype = target.dtype
        self._layer = EagleLayer(
            target.config,
            {name: Linear(weights[name].to(dtype)) for name in MATRICES},
            {name: weights[f"norm.{name}"].to(dtype) for name in NORMS},
        )
        self._tokens = weights["vocabulary"].long()
        self._head = Linear(target.embedding[self._tokens])
        self._memories: dict[int, _Memory] = {}
        self._seen = SeenFeatures()

    @classmethod
    def load(cls, target: Decoder, path: str | Path) -> Eagle:
        """A drafter from a safetensors file."""
        return cls(target, read_drafter(path))

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """Keep the rows of each request until it is known which of its tokens stay."""
        self._seen.observe(batch, hidden)

    @torch.inference_mode()
    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """See ``Proposer``."""
        ready = [one for one in asked if one.most > 0 and one.id in self._seen]
        if not ready:
            return {}
        features = self._read(ready)
        found: list[list[int]] = [[] for _ in ready]
        longest = max(one.most for one in ready)
        for step in range(longest):
            guesses = self._tokens[self._head(features).argmax(-1)].tolist()
            for tokens, guess in zip(found, guesses, strict=True):
                tokens.append(guess)
            if step + 1 < longest:
                places = [[len(one.tokens) - 1 + step] for one in ready]
                features = self._run(ready, [[guess] for guess in guesses], places, features)
        return {one.id: Draft(tokens[: one.most]) for one, tokens in zip(ready, found, strict=True)}

    @torch.inference_mode()
    def tries(self, asked: Sequence[Drafting], count: int) -> Mapping[int, list[int]]:
        """The ``count`` likeliest tokens for the next place, by request: a tree's first level.

        Takes in what was observed, as ``propose`` does, and leaves no guess behind.
        """
        ready = [one for one in asked if one.id in self._seen]
        if not ready:
            return {}
        found = self._tokens[self._head(self._read(ready)).topk(count, dim=-1).indices]
        return dict(zip((one.id for one in ready), found.tolist(), strict=True))

    def forget(self, request_id: int) -> None:
        """See ``Proposer``."""
        self._memories.pop(request_id, None)
        self._seen.forget(request_id)

    def _read(self, asked: Sequence[Drafting]) -> torch.Tensor:
        """Take in the true features of tokens that stayed; the guess after each one's last."""
        places: list[list[int]] = []
        nexts: list[list[int]] = []
        features: list[torch.Tensor] = []
        for one in asked:
            own, rows = self._seen.take(one)
            if one.id not in self._memories:
                self._memories[one.id] = self._blank()
            self._memories[one.id].cut(own[0])
            features += rows
            places.append(own)
            nexts.append([one.tokens[position + 1] for position in own])
        return self._run(asked, nexts, places, self._target.normed(torch.cat(features)))

    def _run(
        self,
        asked: Sequence[Drafting],
        tokens: Sequence[Sequence[int]],
        places: Sequence[list[int]],
        features: torch.Tensor,
    ) -> torch.Tensor:
        """Read tokens with the features before them; returns the guess after each request's last.

        The KV of the entries is kept.
        """
        counts = [len(own) for own in places]
        device = features.device
        flat = torch.tensor([token for own in tokens for token in own], device=device)
        x = self._layer.join(self._target.embedding[flat], features)
        positions = torch.tensor([place for own in places for place in own], device=device)
        query, key, value = self._layer.qkv(x, positions)
        ends = torch.tensor(counts).cumsum(0).tolist()
        attended = []
        for one, own, count, end in zip(asked, places, counts, ends, strict=True):
            memory = self._memories[one.id]
            memory.append(own, key[end - count : end], value[end - count : end])
            attended.append(self._attend(query[end - count : end], memory))
        features = self._layer.feature(x, torch.cat(attended).flatten(1))
        return features[torch.tensor(ends, device=device) - 1]

    def _attend(self, query: torch.Tensor, memory: _Memory) -> torch.Tensor:
        """The newest entries of one request look at all entries up to themselves."""
        count, total = len(query), len(memory.positions)
        kv_heads, _, size = memory.keys.shape
        keys, values = memory.keys[:, :total], memory.values[:, :total]
        share = query.shape[1] // kv_heads
        asked = query.view(count, kv_heads, share, size).permute(1, 2, 0, 3)
        asked = asked.reshape(kv_heads, share * count, size)
        mask = None
        if count > 1:
            last = torch.arange(total - count, total, device=query.device).repeat(share)
            hidden = torch.arange(total, device=query.device) > last[:, None]
            mask = torch.zeros(hidden.shape, dtype=query.dtype, device=query.device)
            mask = mask.masked_fill_(hidden, -torch.inf)
        found = scaled_dot_product_attention(asked[None], keys[None], values[None], attn_mask=mask)
        found = found.view(kv_heads, share, count, size).permute(2, 0, 1, 3)
        return found.reshape(count, kv_heads * share, size)

    def _blank(self) -> _Memory:
        config = self._target.config
        shape = (config.num_kv_heads, 64, config.head_dim)
        empty = torch.empty(shape, dtype=self._target.dtype, device=self._target.device)
        return _Memory(empty, empty.clone())
