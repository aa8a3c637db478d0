"""StepPlan, StepOutcome, StepResult: what passes between scheduler and executor.

``schedule() -> StepPlan`` says what one step computes, ``execute(plan) -> StepOutcome`` says what
came of it, ``update(plan, outcome) -> StepResult`` says who got a first token and who is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from minilab.core.request import RequestState


class Prefill(NamedTuple):
    """A chunk of prompt: tokens ``start`` to ``start + num_tokens`` of ``request``."""

    request: RequestState
    start: int
    num_tokens: int


class StepPlan:
    """One step: which prompts advance by which chunk, and who decodes.

    A simulation makes one per run, so what a plan does not need costs it nothing: the defaults are
    the class's.

    Attributes:
        prefills: chunks of this step.
        decodes: requests that decode, by id. It is the scheduler's live table and not a copy, so it
            is valid until ``update``.
        num_decodes: sequences that decode.
        context: sum over them of the KV tokens read, the new token included.
        drafts: draft tokens to verify, by request id (empty: plain decode).
        admitted: requests that left the queue for this step.
        preempted: requests that lost their blocks so that this step fits.
        loads: requests that left the queue to wait for KV from a cache tier.
        num_waiting: requests that stay in the queue.
        clock: the scheduler's count of decode steps, if it keeps one.
    """

    prefills: Sequence[Prefill] = ()
    decodes: Mapping[int, RequestState] = MappingProxyType({})
    num_decodes = 0
    context = 0
    num_prefill_tokens = 0
    drafts: Mapping[int, int] = MappingProxyType({})
    num_draft_tokens = 0
    admitted: Sequence[RequestState] = ()
    preempted: Sequence[RequestState] = ()
    loads: Sequence[RequestState] = ()
    num_waiting = 0
    clock = 0

    def context_of(self, request: RequestState) -> int:
        """KV tokens that one decoding request reads, the new token included."""
        if request.decoding:
            return request.offset + self.clock + 1
        return request.num_computed_tokens + 1

    @property
    def num_tokens(self) -> int:
        """New tokens computed in the step: decodes, drafts and prompt chunks."""
        return self.num_decodes + self.num_draft_tokens + self.num_prefill_tokens

    @property
    def num_seqs(self) -> int:
        """Sequences that take part in the step."""
        return self.num_decodes + len(self.prefills)

    @property
    def pairs(self) -> int:
        """(query, key) pairs of causal attention in the prompt chunks."""
        return sum(n * start + n * (n + 1) // 2 for _, start, n in self.prefills)

    def __bool__(self) -> bool:
        return bool(self.num_decodes or self.prefills)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What an executor reports of one step; the default is a plain step of everyone.

    Attributes:
        tokens: tokens that came out, by request id, where it is not 1: a decode that verified k
            drafts yields 1..k+1; 0 is a decode that made no progress.
        drafts: draft tokens proposed for the next step, by request id.
        finished: requests that ended before their limit, with the reason ("stop", ...).
        finished_sending: held requests whose KV has left.
        finished_recving: reserved requests whose KV has arrived.
        failed: requests whose transfer broke.
    """

    tokens: Mapping[int, int] = field(default_factory=dict)
    drafts: Mapping[int, int] = field(default_factory=dict)
    finished: Mapping[int, str] = field(default_factory=dict)
    finished_sending: tuple[int, ...] = ()
    finished_recving: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()


PLAIN = StepOutcome()
"""The outcome of a step in which every sequence yields one token."""


class StepResult(NamedTuple):
    """Who changed state in ``update``.

    Attributes:
        started: requests whose prompt is done and whose next token came out.
        finished: requests that ended.
        used_blocks: KV blocks in use before the ended ones gave theirs back.
    """

    started: Sequence[RequestState]
    finished: Sequence[RequestState]
    used_blocks: int


class Executor(Protocol):
    """Whatever runs a plan: a cost model on a virtual clock, or torch on a device."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        """Run one step and report it."""
        ...
