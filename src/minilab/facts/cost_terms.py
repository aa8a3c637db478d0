"""StepShape, LinearCost and Cost: what a cost model is asked, and the form the simulator runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class StepShape(NamedTuple):
    """What one step does, in tokens (a cost model's only input).

    ``num_tokens``: all new tokens (decode, draft, prefill). ``num_seqs``: sequences in the step.
    ``context``: sum over decoding sequences of the KV tokens read, the new one included.
    ``pairs``: prefill (query, key) pairs, sum over chunks of n*start + n*(n+1)//2.
    ``window_context``: as ``context``, each sequence cut at the model's window; -1: ``context``.
    """

    num_tokens: int
    num_seqs: int
    context: int
    pairs: int
    window_context: int = -1


class Term(NamedTuple):
    """One line of the sum: its name, its seconds, and the arithmetic in words."""

    name: str
    seconds: float
    arithmetic: str


@dataclass(frozen=True)
class LinearCost:
    """A cost as the simulator compiles it; all in seconds.

    per_step(n) + per_seq*num_seqs + per_context*context + per_window_context*window_context
    + per_pair*pairs == seconds(shape). ``window`` 0: no windowed layers, the slope is 0.
    """

    per_seq: float
    per_context: float
    per_pair: float
    per_window_context: float = 0.0
    window: int = 0
    request_overhead: float = 0.0
    fixed: float = 0.0
    per_token: float = 0.0
    expert_read: float = 0.0  # reading every expert of every layer
    expert_share: float = 0.0  # chance that one token hits a given expert

    def per_step(self, num_tokens: int) -> float:
        """Everything that depends on the number of tokens alone."""
        touched = 1.0 - (1.0 - self.expert_share) ** num_tokens
        return self.fixed + self.per_token * num_tokens + self.expert_read * touched

    def seconds(self, shape: StepShape) -> float:
        """The step's cost from the linear form."""
        return (
            self.per_step(shape.num_tokens)
            + self.per_seq * shape.num_seqs
            + self.per_context * shape.context
            + self.per_window_context * window_context(shape)
            + self.per_pair * shape.pairs
        )


def window_context(shape: StepShape) -> int:
    """``shape.window_context``, or ``context`` where it was left out."""
    return shape.context if shape.window_context < 0 else shape.window_context


class Cost(Protocol):
    """A cost model: StepCost, WfksCost, or your own. Times are seconds."""

    @property
    def request_overhead(self) -> float:
        """Seconds per request outside any step."""

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Seconds by term."""

    def seconds(self, shape: StepShape) -> float:
        """Their sum."""

    def explain(self, shape: StepShape) -> str:
        """The sum as a table for people."""

    def linear(self) -> LinearCost:
        """The same cost as coefficients."""

    def to_dict(self) -> dict[str, Any]:
        """What made it, as plain JSON values that ``cost_from_dict`` reads back."""


def table(title: str, terms: list[Term]) -> str:
    """``terms`` as lines of text: name, milliseconds, share, arithmetic."""
    total = sum(term.seconds for term in terms)
    lines = [title]
    for name, seconds, arithmetic in [*terms, Term("total", total, "")]:
        share = seconds / total if total else 0.0
        lines.append(f"{name:<18}{seconds * 1e3:>10.4f} ms {share:>6.1%}  {arithmetic}".rstrip())
    return "\n".join(lines)
