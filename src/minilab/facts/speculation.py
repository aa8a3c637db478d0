"""The arithmetic of speculative decoding: tokens per step, and what a step costs.

A step with k drafts computes k drafts and verifies k + 1 positions. It pays if it brings more
tokens than it takes steps' worth of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


def emitted(alpha: float, k: int) -> float:
    """Tokens per step if each draft is kept with probability ``alpha`` given those before it.

    (1 - alpha^(k+1)) / (1 - alpha): the sum 1 + alpha + ... + alpha^k (Leviathan et al. 2023).
    """
    return float(sum(alpha**i for i in range(k + 1)))


def tree_emitted(parents: Sequence[int], chances: Sequence[float]) -> float:
    """Tokens per step that verifies a tree of guesses: 1 + the sum of the chances of all its paths.

    Args:
        parents: index of the guess before each guess, -1 for none; parents come first.
        chances: that a guess is the target's token, given that its parent was. Siblings are
            different tokens, so theirs add up to 1 at most.
    """
    reach: list[float] = []
    for parent, chance in zip(parents, chances, strict=True):
        reach.append(chance * (reach[parent] if parent >= 0 else 1.0))
    return 1 + sum(reach)


def acceptance_length(per_position: Sequence[float]) -> float:
    """Tokens per step from the chance that the draft at each position is kept, unconditional."""
    return 1 + sum(per_position)


def acceptance_rate(per_position: Sequence[float]) -> float:
    """Share of all drafts that are kept: the mean of the same vector."""
    return sum(per_position) / len(per_position)


def rate_per_draft(length: float, k: int) -> float:
    """The ``alpha`` with which ``k`` drafts give ``length`` tokens a step (by bisection).

    Raises:
        ValueError: a length outside 1..k + 1.
    """
    if not 1 <= length <= k + 1:
        raise ValueError(f"length is {length}; with {k} drafts it is between 1 and {k + 1}")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if emitted(middle, k) < length else (low, middle)
    return low


def speedup(tokens: float, k: int, draft: float, verify: float = 1.0) -> float:
    """Speed against plain decoding.

    Args:
        tokens: per step.
        draft: time of one draft over a plain step's time. In time, not in parameters: a draft model
            of a tenth of the size takes far more than a tenth of the time.
        verify: time of the step that verifies k + 1 positions over a plain step's; 1 while the step
            is bound by reading weights, up to k + 1 where it is bound by arithmetic.
    """
    return tokens / (k * draft + verify)


class StepTime(NamedTuple):
    """A step's time as a line in k: ``verify`` + k * ``draft``, in one unit."""

    verify: float
    draft: float

    @classmethod
    def through(cls, one: tuple[int, float], other: tuple[int, float]) -> StepTime:
        """The line through two measured (k, time)."""
        draft = (other[1] - one[1]) / (other[0] - one[0])
        return cls(one[1] - one[0] * draft, draft)

    def at(self, k: int) -> float:
        """Time of a step with ``k`` drafts."""
        return self.verify + k * self.draft

    def per_token(self, lengths: Mapping[int, float]) -> dict[int, float]:
        """Time per output token by k, from the tokens per step at each k."""
        return {k: self.at(k) / length for k, length in lengths.items()}
