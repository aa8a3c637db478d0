"""Hybrid: the first proposer that has an idea.

Look-up is cheap and nearly always right where it finds something; a learned drafter has an idea
everywhere. So they are asked in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.spec.proposer import Draft, Drafting, Proposer


class Hybrid:
    """Asks ``proposers`` in order; each only about the requests that the ones before passed on."""

    def __init__(self, *proposers: Proposer) -> None:
        self._proposers = proposers

    @property
    def reads_hidden(self) -> bool:
        """Whether one of them does."""
        return any(proposer.reads_hidden for proposer in self._proposers)

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """See ``Proposer``."""
        for proposer in self._proposers:
            if proposer.reads_hidden:
                proposer.observe(batch, hidden)

    def propose(self, asked: Sequence[Drafting]) -> Mapping[int, Draft]:
        """See ``Proposer``."""
        drafts: dict[int, Draft] = {}
        left = list(asked)
        for proposer in self._proposers:
            drafts |= proposer.propose(left)
            left = [one for one in left if one.id not in drafts]
            if not left:
                break
        return drafts

    def forget(self, request_id: int) -> None:
        """See ``Proposer``."""
        for proposer in self._proposers:
            proposer.forget(request_id)
