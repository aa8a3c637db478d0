"""Which drafts are kept. The lossless rule, and Medusa's typical acceptance as a contrast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from minilab.engine.sampling import Sampler, SamplingParams, probabilities
from minilab.engine.spec.proposer import Draft
from minilab.kernels.rejection import rejection


@dataclass(frozen=True)
class Judged:
    """One request whose drafts are to be judged.

    Attributes:
        logits: float32 [len(draft.tokens) + 1, vocab_size], at each draft's place and after the
            last.
        likeliest: the tokens with the largest logits, by row.
    """

    id: int
    draft: Draft
    params: SamplingParams
    logits: torch.Tensor
    likeliest: Sequence[int]


class Acceptance(Protocol):
    """Decides what is put out: the kept drafts and one token more, per request."""

    def __call__(self, judged: Sequence[Judged], sampler: Sampler) -> list[list[int]]: ...


class Lossless:
    """What comes out is distributed as without drafts (Leviathan et al. 2023; Chen et al. 2023).

    Greedy requests keep a draft if it is the likeliest token. The others keep draft x with
    probability min(1, p(x)/q(x)), and draw from max(p - q, 0) after the first that is not kept
    (``kernels.rejection``). Each request draws from its own generator.
    """

    def __call__(self, judged: Sequence[Judged], sampler: Sampler) -> list[list[int]]:
        """See ``Acceptance``."""
        drawn = [one for one in judged if one.params.temperature > 0]
        random = dict(zip((one.id for one in drawn), _drawn(drawn, sampler), strict=True))
        return [random[one.id] if one.id in random else greedy(one) for one in judged]


def greedy(judged: Judged) -> list[int]:
    """Drafts as long as they are what would have come out, and the token after them."""
    kept = 0
    for token, likeliest in zip(judged.draft.tokens, judged.likeliest, strict=False):
        if token != likeliest:
            break
        kept += 1
    return [*judged.draft.tokens[:kept], judged.likeliest[kept]]


def _drawn(judged: Sequence[Judged], sampler: Sampler) -> list[list[int]]:
    """The requests above temperature 0, in one call of the kernel."""
    if not judged:
        return []
    device, vocab = judged[0].logits.device, judged[0].logits.shape[1]
    counts = [len(one.draft.tokens) for one in judged]
    target, bonus, uniforms, noise, proposal = [], [], [], [], []
    for one in judged:
        rows = torch.stack([probabilities(row, one.params) for row in one.logits])
        generator = sampler.generator(one.params, one.id, device)
        count = len(one.draft.tokens)
        target.append(rows[:count])
        uniforms.append(torch.rand(count, generator=generator, device=device))
        noise.append(torch.empty(vocab, device=device).exponential_(generator=generator))
        bonus.append(torch.multinomial(rows[count], 1, generator=generator))
        proposal.append(_proposal(one.draft, vocab, device))
    sure = all(one.draft.probs is None for one in judged)
    tokens = [token for one in judged for token in one.draft.tokens]
    out = rejection(
        torch.tensor(tokens, dtype=torch.int64, device=device),
        max(counts),
        torch.tensor(counts, device=device).cumsum(0).to(torch.int32),
        None if sure else torch.cat(proposal),
        torch.cat(target),
        torch.cat(bonus),
        torch.cat(uniforms),
        torch.stack(noise),
    )
    return [[token for token in row if token >= 0] for row in out.tolist()]


def _proposal(draft: Draft, vocab: int, device: torch.device) -> torch.Tensor:
    if draft.probs is not None:
        return draft.probs
    tokens = torch.tensor(draft.tokens, dtype=torch.int64, device=device)
    return torch.nn.functional.one_hot(tokens, vocab).float()


@dataclass(frozen=True)
class Typical:
    """Keeps a draft that is likely enough: NOT lossless (Medusa, Cai et al. 2024, section 2.3.1).

    A draft stays if its probability is above min(epsilon, delta * exp(-entropy)): the less sure
    the target is, the more it lets pass. Faster at high temperature, and the texts differ from
    the target's own.
    """

    epsilon: float = 0.3
    delta: float = 0.09

    def __call__(self, judged: Sequence[Judged], sampler: Sampler) -> list[list[int]]:
        """See ``Acceptance``."""
        return [self._one(one, sampler) for one in judged]

    def _one(self, judged: Judged, sampler: Sampler) -> list[int]:
        if judged.params.temperature == 0:
            return greedy(judged)
        kept = 0
        for token, row in zip(judged.draft.tokens, judged.logits, strict=False):
            chances = (row / judged.params.temperature).softmax(dim=-1)
            entropy = -(chances * chances.clamp(min=1e-30).log()).sum()
            if chances[token] <= torch.clamp(self.delta * (-entropy).exp(), max=self.epsilon):
                break
            kept += 1
        after = sampler.draw(judged.logits[kept], judged.params, judged.id)
        return [*judged.draft.tokens[:kept], after]
