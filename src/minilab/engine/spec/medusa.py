"""Medusa: heads that each guess one later token from the same feature (Cai et al. 2024).

All guesses come from one pass, so they cost next to nothing; but the second head does not know what
the first one guessed, and falls off quickly. These heads also read the token that the target has
just chosen, without which they hardly work at all for a small model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.nn.functional import linear, rms_norm, silu

from minilab.engine.batch import StepBatch
from minilab.engine.config import DecoderConfig
from minilab.engine.linear import Linear
from minilab.engine.model import Decoder
from minilab.engine.spec.learned import check_shapes, read_drafter
from minilab.engine.spec.proposer import Draft, Drafting

HEADS = 3


def medusa_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of the heads' tensors for a target of ``config``."""
    hidden = config.hidden_size
    parts = {"feature": (hidden, hidden), "token": (hidden, hidden), "out": (hidden, hidden)}
    parts_1d = {"bias": (hidden,), "norm": (hidden,)}
    return {f"{head}.{name}": s for head in range(HEADS) for name, s in (parts | parts_1d).items()}


def head_feature(
    weights: Mapping[str, torch.Tensor],
    head: int,
    feature: torch.Tensor,
    embedded: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """The feature that ``head`` expects ``head`` + 1 tokens later: [n, hidden], as its inputs."""
    name = f"{head}."
    wide = (feature.shape[-1:], None, eps)
    inner = linear(feature, weights[name + "feature"], weights[name + "bias"])
    inner = inner + linear(rms_norm(embedded, *wide), weights[name + "token"])
    changed = feature + linear(silu(inner), weights[name + "out"])
    return rms_norm(changed, feature.shape[-1:], weights[name + "norm"], eps)


class Medusa:
    """A ``Proposer`` of heads on the target's last feature.

    Args:
        target: the model whose features and embedding they read.
        weights: as ``medusa_shapes``, and ``vocabulary``: int[n], the tokens they may guess.

    Raises:
        InputError: weights that do not fit the target.
    """

    reads_hidden = True

    def __init__(self, target: Decoder, weights: Mapping[str, torch.Tensor]) -> None:
        check_shapes(weights, medusa_shapes(target.config))
        self._target = target
        self._weights = {name: value.to(target.dtype) for name, value in weights.items()}
        self._tokens = weights["vocabulary"].long()
        self._head = Linear(target.embedding[self._tokens])
        self._last: dict[int, tuple[int, torch.Tensor]] = {}

    @classmethod
    def load(cls, target: Decoder, path: str | Path) -> Medusa:
        """Heads from a safetensors file."""
        return cls(target, read_drafter(path))

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """Keep each request's rows, and the position of the first."""
        first = batch.seq_lens.tolist()
        for request, count, length, rows in zip(
            batch.requests,
            batch.query_lens,
            first,
            torch.split(hidden, batch.query_lens),
            strict=True,
        ):
            self._last[request.id] = (length - count, rows)

    @torch.inference_mode()
    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """See ``Proposer``: up to one guess per head."""
        ready = [one for one in asked if one.most > 0 and one.id in self._last]
        if not ready:
            return {}
        rows = []
        for one in ready:
            start, hidden = self._last[one.id]
            rows.append(hidden[len(one.tokens) - 2 - start])  # the newest token has no feature yet
        feature = self._target.normed(torch.stack(rows))
        newest = torch.tensor([one.tokens[-1] for one in ready], device=feature.device)
        embedded, eps = self._target.embedding[newest], self._target.config.rms_norm_eps
        guesses = [
            self._tokens[
                self._head(head_feature(self._weights, head, feature, embedded, eps)).argmax(-1)
            ].tolist()
            for head in range(min(HEADS, max(one.most for one in ready)))
        ]
        return {
            one.id: Draft([head[row] for head in guesses[: one.most]])
            for row, one in enumerate(ready)
        }

    def forget(self, request_id: int) -> None:
        """See ``Proposer``."""
        self._last.pop(request_id, None)
