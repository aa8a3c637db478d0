"""RequestState: one request while a scheduler works on it.

It knows counts and blocks, never token ids: those stay with the executor that computes them,
which is what lets a simulator and a real engine share one scheduler.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class RequestSpec(Protocol):
    """What the core reads of a client's request (``facts.request.Request`` has it)."""

    @property
    def id(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


class RequestStatus(IntEnum):
    """Where a request stands; names follow vLLM, HELD is ours."""

    WAITING = 0
    WAITING_FOR_REMOTE_KVS = 1
    RUNNING = 2
    PREEMPTED = 3
    HELD = 4  # finished, but its blocks stay until the connector has sent them
    FINISHED = 5
    ABORTED = 6
    REJECTED = 7
    FAILED = 8


WAITING = RequestStatus.WAITING
WAITING_FOR_REMOTE_KVS = RequestStatus.WAITING_FOR_REMOTE_KVS
RUNNING = RequestStatus.RUNNING
PREEMPTED = RequestStatus.PREEMPTED
HELD = RequestStatus.HELD
FINISHED = RequestStatus.FINISHED
ABORTED = RequestStatus.ABORTED
REJECTED = RequestStatus.REJECTED
FAILED = RequestStatus.FAILED


class RequestState:
    """Progress of one request. All counts are tokens.

    Attributes:
        num_computed_tokens: tokens whose KV is in ``block_table``. While ``decoding`` it is stale:
            the truth is ``offset`` + the scheduler's clock (see ``Scheduler.computed``).
        num_output_tokens: tokens produced so far; stale in the same way while ``decoding``.
        decoding: the prompt is done and one token comes out per step. A flag and not "one token is
            left to compute", because the last chunk of a recompute may be one token long too.
        offset: ``num_computed_tokens`` minus the scheduler's clock, constant while decoding.
        last: clock value at which the last token comes out; -1 when not decoding.
        block_table: ids of the KV blocks, in order of position.
        block_hashes: hashes of the leading full blocks, as far as anyone needed them.
        num_published: leading blocks already offered to the prefix index.
        has_copies: some of them stayed private, because their text was published already.
        num_cached_tokens: prompt tokens found in the prefix index at first admission.
        num_external_tokens: prompt tokens that come, or came, from a cache tier.
        expected_hit: prompt tokens that the router expected to be cached where it sent the request.
        num_draft_tokens: guesses to verify in the next step (0: none).
        remote_prefill: KV of the prompt comes from elsewhere.
        hold_blocks: keep the blocks after the end until they are sent.
    """

    __slots__ = (
        "block_hashes",
        "block_table",
        "decoding",
        "expected_hit",
        "first_token_at",
        "has_copies",
        "hold_blocks",
        "id",
        "last",
        "max_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_draft_tokens",
        "num_external_tokens",
        "num_output_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_published",
        "offset",
        "queued_at",
        "remote_prefill",
        "request",
        "scheduled_at",
        "span_from",
        "span_time",
        "status",
        "zeros",
    )

    def __init__(
        self, request: RequestSpec, *, remote_prefill: bool = False, hold_blocks: bool = False
    ) -> None:
        self.request = request
        self.id = request.id
        self.num_prompt_tokens = request.prompt_tokens
        self.max_tokens = request.output_tokens
        self.status = WAITING
        self.num_computed_tokens = 0
        self.num_output_tokens = 0
        self.decoding = False
        self.offset = 0
        self.last = -1
        self.block_table: list[int] = []
        self.block_hashes: list[int] = []
        self.num_published = 0
        self.has_copies = False
        self.num_cached_tokens = -1
        self.num_preemptions = 0
        self.expected_hit = 0
        self.num_external_tokens = 0
        self.num_draft_tokens = 0
        self.remote_prefill = remote_prefill
        self.hold_blocks = hold_blocks
        # Written by whoever keeps the record, in ticks; -1 = has not happened.
        self.queued_at = -1
        self.scheduled_at = -1
        self.first_token_at = -1
        self.span_time = -1
        self.span_from = 0
        self.zeros = 0

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt and what came out. Not valid while ``decoding``."""
        return self.num_prompt_tokens + self.num_output_tokens
