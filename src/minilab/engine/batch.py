"""StepBatch: a step plan as the flat tensors that one forward pass reads.

Sequences lie one after the other without padding: first the prompt chunks, then the decodes. Where
each one's KV lives is said by block tables, as in vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from minilab.core.plan import StepPlan
from minilab.core.request import RequestState


@dataclass(frozen=True)
class StepBatch:
    """One step. T tokens, S sequences, of which the first P are prompt chunks.

    Attributes:
        requests: the sequences' requests, in order.
        token_ids, positions: int64[T].
        slot_mapping: int64[T], block id * block_size + offset for each token's KV.
        block_tables: int32[S, most blocks], padded with 0.
        seq_lens: int32[S], KV tokens of each sequence after this step.
        cu_seqlens: int32[P + 1], where each prompt chunk begins.
        max_seqlen: longest prompt chunk.
        sampled: int64[n], rows of the tokens from which an output token is drawn.
        sampling: the requests that get one, in the same order.
    """

    requests: list[RequestState]
    token_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    cu_seqlens: torch.Tensor
    max_seqlen: int
    sampled: torch.Tensor
    sampling: list[RequestState]

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens of the prompt chunks; the decodes' tokens follow them."""
        return int(self.cu_seqlens[-1])

    @classmethod
    def of(
        cls,
        plan: StepPlan,
        tokens_of: Callable[[RequestState], Sequence[int]],
        block_size: int,
        device: torch.device,
    ) -> StepBatch:
        """The batch of ``plan``; ``tokens_of`` gives the ids of prompt and output so far."""
        pieces = [*plan.prefills]
        pieces += [(r, plan.context_of(r) - 1, 1) for r in plan.decodes.values()]  # type: ignore[misc]
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        ends: list[int] = [0]
        sampled: list[int] = []
        sampling: list[RequestState] = []
        for request, start, count in pieces:
            tokens, table = tokens_of(request), request.block_table
            ids += tokens[start : start + count]
            span = range(start, start + count)
            positions += span
            slots += [table[p // block_size] * block_size + p % block_size for p in span]
            ends.append(len(ids))
            if start + count == len(tokens):
                sampled.append(len(ids) - 1)
                sampling.append(request)
        tables = [request.block_table for request, _, _ in pieces]
        widest = max(map(len, tables))
        padded = [table + [0] * (widest - len(table)) for table in tables]
        chunks = len(plan.prefills)

        def tensor(values: object, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        return cls(
            requests=[request for request, _, _ in pieces],
            token_ids=tensor(ids, torch.int64),
            positions=tensor(positions, torch.int64),
            slot_mapping=tensor(slots, torch.int64),
            block_tables=tensor(padded, torch.int32),
            seq_lens=tensor([start + count for _, start, count in pieces], torch.int32),
            cu_seqlens=tensor(ends[: chunks + 1], torch.int32),
            max_seqlen=max((count for _, _, count in plan.prefills), default=0),
            sampled=tensor(sampled, torch.int64),
            sampling=sampling,
        )
