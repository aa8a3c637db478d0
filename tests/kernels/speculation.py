"""Batches of drafts for the rejection tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Batch:
    """rejection's arguments, on the CPU; ``on`` gives them in order on a device."""

    draft_ids: torch.Tensor
    lengths: list[int]
    draft_probs: torch.Tensor | None
    target_probs: torch.Tensor
    bonus_ids: torch.Tensor
    uniforms: torch.Tensor | None
    exponentials: torch.Tensor | None
    is_greedy: torch.Tensor | None

    @property
    def requests(self) -> int:
        """How many."""
        return len(self.lengths)

    @property
    def width(self) -> int:
        """Columns of the result."""
        return max([0, *self.lengths]) + 1

    def on(self, device: torch.device) -> tuple[Any, ...]:
        """Positional arguments."""
        ends = torch.tensor(self.lengths, dtype=torch.int32).cumsum(0).to(torch.int32)
        arrays = (
            self.draft_ids, self.width - 1, ends, self.draft_probs, self.target_probs,
            self.bonus_ids, self.uniforms, self.exponentials, self.is_greedy,
        )  # fmt: skip
        return tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in arrays)


def make_batch(lengths: list[int], *, vocab: int, kind: str, seed: int) -> Batch:
    """Peaked distributions; q leans towards p, so that drafts are kept about half the time.

    ``kind``: "random", "greedy" or "mixed", after "n-gram" for drafts without probabilities.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, requests = sum(lengths), len(lengths)
    p = (6 * torch.randn(tokens, vocab, generator=generator)).softmax(-1)
    q = (6 * torch.randn(tokens, vocab, generator=generator)).softmax(-1)
    q = 0.5 * p + 0.5 * q
    draft_ids = (
        torch.multinomial(q, 1, generator=generator)[:, 0] if tokens else q.new_empty(0).long()
    )
    likely = torch.rand(tokens, generator=generator) < 0.6
    if "greedy" in kind and tokens:
        draft_ids = torch.where(likely, p.argmax(-1), draft_ids)
    noise = torch.empty(requests, vocab).exponential_(generator=generator)
    return Batch(
        draft_ids=draft_ids,
        lengths=lengths,
        draft_probs=None if "n-gram" in kind else q,
        target_probs=p,
        bonus_ids=torch.arange(requests) + 1,
        uniforms=None if "greedy" in kind else torch.rand(tokens, generator=generator),
        exponentials=None if "greedy" in kind else noise,
        is_greedy=torch.arange(requests) % 2 == 0 if "mixed" in kind else None,
    )
