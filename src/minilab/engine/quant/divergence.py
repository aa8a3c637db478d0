"""divergence: how far a model's guesses are from those of the model it was made from.

Perplexity says how well the text was guessed, KL how far the guesses moved, top-1 agreement how
often the first choice stayed. Perplexity can improve by accident; KL cannot be below 0. Intervals
are by bootstrap over runs of neighbouring tokens, whose errors go together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

RUN = 64
"""Neighbouring tokens that are drawn together."""

Array = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Guesses:
    """Per token of a text: nats of surprise, KL from the reference in nats, same first choice."""

    surprise: Array
    kl: Array
    agrees: Array

    @staticmethod
    def join(parts: Sequence[Guesses]) -> Guesses:
        """Windows of one text as one."""
        names = ("surprise", "kl", "agrees")
        return Guesses(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


@dataclass(frozen=True)
class Reference:
    """The unchanged model's guesses on some tokens: what every row is held against."""

    token_ids: Sequence[int]
    log_probs: torch.Tensor
    probs: torch.Tensor
    first: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, token_ids: Sequence[int]) -> Reference:
        """From [num_tokens, vocab_size] for ``token_ids``; the last row guesses nothing."""
        log_probs = logits[:-1].float().log_softmax(-1)
        return cls(token_ids, log_probs, log_probs.exp(), log_probs.argmax(1))

    def compare(self, logits: torch.Tensor) -> Guesses:
        """Another model's [num_tokens, vocab_size] for the same tokens."""
        ours = logits[:-1].float().log_softmax(-1)
        wanted = torch.tensor(self.token_ids[1:], device=ours.device)
        surprise = -ours.gather(1, wanted[:, None])[:, 0]
        kl = (self.probs * (self.log_probs - ours)).sum(1).clamp(min=0)
        agrees = ours.argmax(1) == self.first
        return Guesses(*(x.double().cpu().numpy() for x in (surprise, kl, agrees)))


def compare(logits: torch.Tensor, reference: torch.Tensor, token_ids: Sequence[int]) -> Guesses:
    """Both [num_tokens, vocab_size] for the same ``token_ids``; the last row guesses nothing."""
    return Reference.of(reference, token_ids).compare(logits)


def perplexity(logits: torch.Tensor, token_ids: Sequence[int]) -> float:
    """exp of the mean surprise at ``token_ids`` after the first."""
    wanted = torch.tensor(token_ids[1:], device=logits.device)
    chosen = logits[:-1].float().log_softmax(-1).gather(1, wanted[:, None])
    return math.exp(-float(chosen.double().mean()))


def intervals(
    guesses: Guesses, base: Guesses, draws: int = 1000, seed: int = 0, run: int = RUN
) -> dict[str, Interval]:
    """ppl_change (share), kl (nats) and agreement (share), each with its 95 % interval.

    ``base`` is the reference's own surprise on the same tokens: the change of perplexity is paired.
    """
    columns = np.stack([guesses.surprise - base.surprise, guesses.kl, guesses.agrees])
    count = columns.shape[1]
    starts = np.arange(0, count, run)
    sums = np.add.reduceat(columns, starts, axis=1)
    sizes = np.diff(np.append(starts, count))
    picks = np.random.default_rng(seed).integers(0, len(starts), (draws, len(starts)))
    means = sums[:, picks].sum(2) / sizes[picks].sum(1)
    low, high = np.quantile(means, [0.025, 0.975], axis=1)
    middle = columns.mean(1)
    rows = {}
    for at, name in enumerate(("ppl_change", "kl", "agreement")):
        ends = [float(x[at]) for x in (middle, low, high)]
        rows[name] = Interval(*(math.expm1(min(x, 700.0)) for x in ends) if at == 0 else ends)
    return rows
