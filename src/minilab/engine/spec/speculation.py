"""Speculation: what an executor needs so that its decode steps may yield several tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.generation import Generation
from minilab.engine.sampling import Sampler
from minilab.engine.spec.acceptance import Acceptance, Judged, Lossless
from minilab.engine.spec.draft_table import DraftTable
from minilab.engine.spec.metrics import DraftCounts
from minilab.engine.spec.proposer import Draft, Drafting, Proposer


@dataclass
class Speculation:
    """A proposer, how much it may propose, and the rule that judges it.

    Attributes:
        table: drafts per request, by the number of requests that decode.
        drafts: what was proposed for the next step, by request id.
        counts: what became of the drafts so far.
    """

    proposer: Proposer
    table: DraftTable
    acceptance: Acceptance = field(default_factory=Lossless)
    drafts: dict[int, Draft] = field(default_factory=dict)
    counts: DraftCounts = field(default_factory=DraftCounts)

    @classmethod
    def of(cls, proposer: Proposer, k: int) -> Speculation:
        """Up to ``k`` drafts per request, whatever the batch."""
        return cls(proposer, DraftTable.constant(k))

    @property
    def draft_tokens(self) -> Mapping[int, list[int]]:
        """Ids of the drafts for the next step, by request id."""
        return {key: draft.tokens for key, draft in self.drafts.items()}

    def judge(
        self,
        batch: StepBatch,
        logits: torch.Tensor,
        likeliest: list[int],
        texts: Mapping[int, Generation],
        sampler: Sampler,
    ) -> dict[int, list[int]]:
        """What each request with drafts in ``batch`` puts out: kept drafts and one token."""
        judged: list[Judged] = []
        row = 0
        for request, count in zip(batch.sampling, batch.num_sampled, strict=True):
            if count > 1:
                rows = slice(row, row + count)
                draft = _cut(self.drafts[request.id], count - 1)
                params = texts[request.id].params
                judged.append(Judged(request.id, draft, params, logits[rows], likeliest[rows]))
            row += count
        outs = self.acceptance(judged, sampler) if judged else []
        return {one.id: out for one, out in zip(judged, outs, strict=True)}

    def propose(self, texts: Iterable[tuple[int, Generation]]) -> dict[int, int]:
        """Drafts for the next step of all ``texts`` that decode; returns their numbers by id."""
        running = list(texts)
        k = self.table.k_for(len(running))
        asked = [
            Drafting(key, text.tokens, text.params, min(k, _left(text) - 1))
            for key, text in running
        ]
        # A request that the step left out (prefill first) keeps what was proposed for it.
        for key, _ in running:
            self.drafts.pop(key, None)
        if k and asked:
            self.drafts |= self.proposer.propose(asked)
        # 0 must be said too: the scheduler would keep the number of a step before.
        return {
            key: len(self.drafts[key].tokens) if key in self.drafts else 0 for key, _ in running
        }

    def forget(self, request_id: int) -> None:
        """A request has ended."""
        self.drafts.pop(request_id, None)
        self.proposer.forget(request_id)


def _left(text: Generation) -> int:
    """Tokens that a request may still put out."""
    return text.params.max_tokens - (len(text.tokens) - text.num_prompt_tokens)


def _cut(draft: Draft, count: int) -> Draft:
    """The first ``count``: the scheduler may afford fewer than were proposed."""
    if count == len(draft.tokens):
        return draft
    return Draft(draft.tokens[:count], None if draft.probs is None else draft.probs[:count])
