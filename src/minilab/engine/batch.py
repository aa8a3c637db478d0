"""StepBatch: a step plan as the flat tensors that one forward pass reads.

Sequences lie one after the other without padding: first the prompt chunks, then the decodes, each
with its drafts behind its last token. Where each one's KV lies is said by block tables, as in vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from minilab.core.plan import StepPlan
from minilab.core.request import RequestState

NO_DRAFTS: Mapping[int, Sequence[int]] = {}


class Piece(NamedTuple):
    """New tokens ``ids`` of one sequence, the first at position ``start``; the logits of the last
    ``asked`` of them are wanted."""

    ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    asked: int


@dataclass(frozen=True)
class StepBatch:
    """One step. T tokens, S sequences, of which the first ``num_prefills`` are prompt chunks.

    Attributes:
        requests: the sequences' requests, in order.
        query_lens: new tokens of each sequence: a chunk, or 1 and its drafts.
        token_ids, positions: int64[T].
        slot_mapping: int64[T], block id * block_size + offset for each token's KV.
        block_tables: int32[S, most blocks], padded with 0.
        seq_lens: int32[S], KV tokens of each sequence after this step.
        cu_seqlens: int32[S + 1], where each sequence begins in the batch.
        sampled: int64[n], rows of the tokens whose logits are asked.
        sampling: the requests that get an output token, in order.
        num_sampled: rows of each of these: 1, and 1 for each draft.
    """

    requests: list[RequestState]
    num_prefills: int
    query_lens: list[int]
    block_size: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    cu_seqlens: torch.Tensor
    sampled: torch.Tensor
    sampling: list[RequestState]
    num_sampled: list[int]

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens of the prompt chunks; the decodes' tokens follow them."""
        return sum(self.query_lens[: self.num_prefills])

    @property
    def row_starts(self) -> list[int]:
        """``cu_seqlens`` as numbers."""
        return [0, *accumulate(self.query_lens)]

    @classmethod
    def of(
        cls,
        plan: StepPlan,
        tokens_of: Callable[[RequestState], Sequence[int]],
        block_size: int,
        device: torch.device,
        drafts: Mapping[int, Sequence[int]] = NO_DRAFTS,
    ) -> StepBatch:
        """The batch of ``plan``.

        Args:
            tokens_of: gives the ids of prompt and output so far.
            drafts: ids of the draft tokens by request; the plan says how many of them are verified.
        """
        pieces: list[tuple[RequestState, int, int]] = [*plan.prefills]
        for request in plan.decodes.values():
            count = 1 + plan.drafts.get(request.id, 0)
            pieces.append((request, plan.context_of(request) - 1, count))
        parts: list[Piece] = []
        for number, (request, start, count) in enumerate(pieces):
            tokens = tokens_of(request)
            ids = tokens[start : start + count]
            guessed = count - len(ids)
            if guessed:
                ids = [*ids, *drafts[request.id][:guessed]]
            decodes = number >= len(plan.prefills)
            asked = 1 + guessed if decodes else int(start + count == len(tokens))
            parts.append(Piece(ids, start, request.block_table, asked))
        requests = [request for request, _, _ in pieces]
        return cls.laid_out(parts, block_size, device, len(plan.prefills), requests)

    @classmethod
    def laid_out(
        cls,
        sequences: Sequence[Piece],
        block_size: int,
        device: torch.device,
        num_prefills: int = 0,
        requests: Sequence[RequestState] = (),
    ) -> StepBatch:
        """The batch of ``sequences``, of which the first ``num_prefills`` are prompt chunks."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        sampled: list[int] = []
        for one in sequences:
            table, span = one.block_table, range(one.start, one.start + len(one.ids))
            ids += one.ids
            positions += span
            slots += [table[p // block_size] * block_size + p % block_size for p in span]
            sampled += range(len(ids) - one.asked, len(ids))
        query_lens = [len(one.ids) for one in sequences]
        widest = max(len(one.block_table) for one in sequences)
        tables = [[*one.block_table] + [0] * (widest - len(one.block_table)) for one in sequences]

        def tensor(values: object, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        return cls(
            requests=list(requests),
            num_prefills=num_prefills,
            query_lens=query_lens,
            block_size=block_size,
            token_ids=tensor(ids, torch.int64),
            positions=tensor(positions, torch.int64),
            slot_mapping=tensor(slots, torch.int64),
            block_tables=tensor(tables, torch.int32),
            seq_lens=tensor([one.start + len(one.ids) for one in sequences], torch.int32),
            cu_seqlens=tensor([0, *accumulate(query_lens)], torch.int32),
            sampled=tensor(sampled, torch.int64),
            sampling=[r for r, one in zip(requests, sequences, strict=False) if one.asked],
            num_sampled=[one.asked for one in sequences if one.asked],
        )
