"""DraftCounts: how many guesses were made, verified and kept, by vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass
class DraftCounts:
    """Counters since the start, over all requests.

    Attributes:
        num_steps: decode steps of a request, with or without drafts.
        num_drafts: those with at least one draft token to verify.
        num_draft_tokens, num_accepted_tokens: verified and kept.
        num_emitted_tokens: tokens that came out of decode steps.
        accepted_per_pos: by position, how often the draft there was kept.
        drafted_per_pos: by position, how often there was one.
    """

    num_steps: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    accepted_per_pos: list[int] = field(default_factory=list)
    drafted_per_pos: list[int] = field(default_factory=list)

    def count(self, drafted: int, accepted: int, emitted: int) -> None:
        """One request's step: so many drafts, kept ones, and tokens put out."""
        self.num_steps += 1
        self.num_emitted_tokens += emitted
        if not drafted:
            return
        self.num_drafts += 1
        self.num_draft_tokens += drafted
        self.num_accepted_tokens += accepted
        missing = drafted - len(self.drafted_per_pos)
        self.drafted_per_pos += [0] * missing
        self.accepted_per_pos += [0] * missing
        for position in range(drafted):
            self.drafted_per_pos[position] += 1
            self.accepted_per_pos[position] += position < accepted

    def copy(self) -> DraftCounts:
        """The counts as they are now."""
        return replace(
            self,
            accepted_per_pos=[*self.accepted_per_pos],
            drafted_per_pos=[*self.drafted_per_pos],
        )

    @property
    def acceptance_length(self) -> float:
        """Mean tokens per step that had a draft, 1 included: what vLLM's log calls
        "Mean acceptance length". It leaves out the steps without one."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens per decode step, steps without a draft included: what speed comes from."""
        return self.num_emitted_tokens / self.num_steps if self.num_steps else 1.0

    @property
    def acceptance_rate(self) -> float:
        """Share of the verified drafts that were kept."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def per_position(self) -> list[float]:
        """By position, how often its draft was kept in a step that had a draft: vLLM's vector."""
        return [kept / self.num_drafts for kept in self.accepted_per_pos]

    @property
    def expanded_batch(self) -> float:
        """Positions computed per token put out: 1 without drafts, more where guesses are wrong."""
        computed = self.num_steps + self.num_draft_tokens
        return computed / self.num_emitted_tokens if self.num_emitted_tokens else 1.0

    def counters(self) -> Mapping[str, float]:
        """vLLM's counters by metric name (seen in vLLM 0.11, vllm/v1/spec_decode/metrics.py)."""
        name = "vllm:spec_decode_num_"
        found: dict[str, float] = {
            f"{name}drafts": self.num_drafts,
            f"{name}draft_tokens": self.num_draft_tokens,
            f"{name}accepted_tokens": self.num_accepted_tokens,
        }
        for position, kept in enumerate(self.accepted_per_pos):
            found[f'{name}accepted_tokens_per_pos{{position="{position}"}}'] = kept
        return found
