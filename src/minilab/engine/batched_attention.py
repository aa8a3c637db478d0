"""Attention for a CPU: the pages of many sequences side by side, and torch's own attention.

The kernels' references walk sequence by sequence, to be read. On a CPU that is a thousand small
calls a step. Here a layer gathers the pages of all decoding sequences in one call and attends in
one more. The price is padding, so sequences are grouped by length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

from minilab.engine.attention import AttentionStep
from minilab.engine.batch import StepBatch

FEW = 16
"""New tokens up to which a sequence joins a group; a longer chunk is worth calls of its own."""
WASTE = 1.3
"""How much longer than the shortest of its group a sequence may be."""


class BatchedAttention:
    """See ``attention.Attention``. ``share``: query heads per key head; ``dtype``: theirs."""

    def __init__(self, share: int, dtype: torch.dtype) -> None:
        self._share, self._dtype = share, dtype

    def __call__(self, batch: StepBatch) -> AttentionStep:
        """Groups, masks and buffers of this step."""
        return _BatchedStep(batch, self._share, self._dtype)


@dataclass(frozen=True)
class _Group:
    """Sequences that are computed together, padded to the same lengths.

    Attributes:
        rows: int64[num_seqs * q_len], their tokens' rows in the batch; padding repeats one.
        blocks: int64[num_seqs * num_pages], their pages.
        mask: [num_seqs, 1, q_len * share, num_pages * block_size], 0 where a token is seen and
            -inf where not.
        kept: int64, entries of ``rows`` that are not padding; None for all.
    """

    num_seqs: int
    rows: torch.Tensor
    blocks: torch.Tensor
    mask: torch.Tensor
    kept: torch.Tensor | None


class _BatchedStep:
    def __init__(self, batch: StepBatch, share: int, dtype: torch.dtype) -> None:
        self._slots, self._share = batch.slot_mapping, share
        lengths = batch.seq_lens.tolist()
        for count, length in zip(batch.query_lens, lengths, strict=True):
            if count > length:
                raise ValueError(f"seq_lens has {length} for a sequence of {count} new tokens")
        self._groups = [
            _group(batch, members, lengths, share, dtype)
            for members in _alike(batch.query_lens, lengths)
        ]

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor
    ) -> torch.Tensor:
        """See ``attention.AttentionStep``."""
        kv_heads, head_dim = key.shape[1:]
        tokens = cache.view(2, -1, kv_heads, head_dim)
        tokens[0].index_copy_(0, self._slots, key)
        tokens[1].index_copy_(0, self._slots, value)
        out = torch.empty_like(query)
        for group in self._groups:
            seqs = group.num_seqs
            pages = cache.index_select(1, group.blocks).view(2, seqs, -1, kv_heads, head_dim)
            keys, values = pages.transpose(2, 3)
            # The query heads that share a key head are more queries of that head.
            asked = query[group.rows].view(seqs, -1, kv_heads, self._share, head_dim)
            asked = asked.transpose(1, 2).flatten(2, 3)
            found = attend(asked, keys, values, attn_mask=group.mask)
            found = found.view(seqs, kv_heads, -1, self._share, head_dim).transpose(1, 2)
            found = found.reshape(-1, kv_heads * self._share, head_dim)
            if group.kept is None:
                out[group.rows] = found
            else:
                out[group.rows[group.kept]] = found[group.kept]
        return out


def _alike(query_lens: Sequence[int], seq_lens: Sequence[int]) -> list[list[int]]:
    """Sequences by group: long chunks alone, others with those of about their length."""
    groups: list[list[int]] = []
    shortest = 0  # of the last group; 0: nobody may join it
    for seq in sorted(range(len(seq_lens)), key=lambda i: (query_lens[i] > FEW, seq_lens[i])):
        if shortest and query_lens[seq] <= FEW and seq_lens[seq] <= WASTE * shortest + FEW:
            groups[-1].append(seq)
            continue
        groups.append([seq])
        shortest = seq_lens[seq] if query_lens[seq] <= FEW else 0
    return groups


def _group(
    batch: StepBatch, members: list[int], lengths: list[int], share: int, dtype: torch.dtype
) -> _Group:
    """Pad ``members`` to the same numbers of tokens and pages."""
    device, size = batch.token_ids.device, batch.block_size
    starts = batch.row_starts
    q_lens = [batch.query_lens[seq] for seq in members]
    width, pages = max(q_lens), -(-max(lengths[seq] for seq in members) // size)
    rows = [
        starts[s] + min(i, q - 1)
        for s, q in zip(members, q_lens, strict=True)
        for i in range(width)
    ]
    kept = [n * width + i for n, q in enumerate(q_lens) for i in range(q)]
    chosen = torch.tensor(members, device=device)
    # The last of q new tokens sees the whole sequence, the one before it one token less.
    sees = [
        lengths[s] - q + min(i, q - 1)
        for s, q in zip(members, q_lens, strict=True)
        for i in range(width)
    ]
    last = torch.tensor(sees, device=device).view(len(members), 1, width, 1)
    hidden = torch.arange(pages * size, device=device) > last
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf)
    return _Group(
        num_seqs=len(members),
        rows=torch.tensor(rows, device=device),
        blocks=batch.block_tables[chosen, :pages].flatten().long(),
        mask=mask.repeat_interleave(share, dim=2),
        kept=None if len(kept) == len(rows) else torch.tensor(kept, device=device),
    )
