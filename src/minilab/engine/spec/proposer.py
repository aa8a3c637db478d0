"""Proposer: whatever guesses the next tokens of a text.

A guess is right or wrong; the target model decides. So a proposer may be as crude as a look-up, and
nothing that it does can change a text, only how many steps it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.sampling import SamplingParams


@dataclass(frozen=True)
class Drafting:
    """A request that may be given drafts.

    Attributes:
        tokens: prompt and output; the last one has just come out and has no KV yet.
        most: drafts that are wanted at most.
    """

    id: int
    tokens: list[int]
    params: SamplingParams
    most: int


@dataclass(frozen=True)
class Draft:
    """Guesses for the tokens that follow a text.

    Attributes:
        tokens: in order.
        probs: float32 [len(tokens), vocab_size], the distributions they were drawn from; None if
            nothing was drawn: then all of the probability is on the tokens themselves.
    """

    tokens: list[int]
    probs: torch.Tensor | None = None


class Proposer(Protocol):
    """Guesses for a whole batch at once.

    Attributes:
        reads_hidden: whether ``observe`` must be called.
    """

    @property
    def reads_hidden(self) -> bool: ...

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """See what the target computed in a step, before its drafts are judged.

        ``hidden``: [num_tokens, hidden_size], the last layer's output before the final norm.
        """
        ...

    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """Drafts by request id; a request without an entry gets none."""
        ...

    def forget(self, request_id: int) -> None:
        """A request has ended."""
        ...


class TextProposer:
    """A proposer that looks at the text only, one request at a time."""

    reads_hidden = False

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """Nothing to see."""

    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """See ``Proposer``."""
        found = {one.id: self.continuation(one) for one in asked if one.most > 0}
        return {key: Draft(tokens) for key, tokens in found.items() if tokens}

    def continuation(self, asked: Drafting) -> list[int]:
        """Up to ``asked.most`` tokens that may follow; [] for no idea."""
        raise NotImplementedError

    def forget(self, request_id: int) -> None:
        """Nothing is kept unless a subclass does."""
