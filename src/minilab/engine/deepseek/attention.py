"""Attention over pages of latents, in both ways to compute it.

A token is cached as one latent and one rotated key, shared by all heads. *Expanded* (naive)
attention multiplies every cached latent back to each head's key and value: little work per pair of
tokens, but the whole past is expanded again. *Absorbed* attention multiplies the query into the
latents' space instead and attends there: nothing is expanded, but a pair of tokens costs
``kv_lora_rank`` multiply-adds and not ``qk_nope_head_dim``. A prompt is better expanded, once; a
single new token is better absorbed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from minilab.engine.batch import StepBatch
from minilab.engine.linear import Linear
from minilab.kernels.mla_decode import mla_decode


@dataclass(frozen=True)
class UpProjection:
    """What turns a latent into every head's key and value.

    Attributes:
        both: kv_lora_rank to num_heads * (nope + v_head_dim).
        key: [num_heads, nope, kv_lora_rank], its rows that make keys.
        value: [num_heads, kv_lora_rank, v_head_dim], those that make values, turned.
    """

    both: Linear
    key: torch.Tensor
    value: torch.Tensor

    @classmethod
    def of(cls, weight: torch.Tensor, num_heads: int, nope: int) -> UpProjection:
        """``weight``: ``kv_b_proj`` of a checkpoint."""
        heads = weight.view(num_heads, -1, weight.shape[1])
        key, value = heads[:, :nope], heads[:, nope:]
        return cls(Linear(weight), key.contiguous(), value.transpose(1, 2).contiguous())


class LatentStep(Protocol):
    """The attention of one step, called once per layer."""

    def __call__(
        self, query: torch.Tensor, latent: torch.Tensor, up: UpProjection, cache: torch.Tensor
    ) -> torch.Tensor:
        """Write the new latents into ``cache``, then attend.

        Args:
            query: [num_tokens, num_heads, nope + rope], the last ``rope`` numbers rotated.
            latent: [num_tokens, kv_lora_rank + rope], normed, and the rotated key.
            cache: [1, num_blocks, block_size, kv_lora_rank + rope], one layer's.

        Returns:
            [num_tokens, num_heads, v_head_dim].
        """
        ...


class LatentAttention(Protocol):
    """Prepares the step of a batch."""

    def __call__(self, batch: StepBatch) -> LatentStep: ...


class Absorbed:
    """Prompt chunks expanded, decodes (and drafts to verify) absorbed, through ``mla_decode``."""

    def __init__(self, kv_lora_rank: int) -> None:
        self._rank = kv_lora_rank

    def __call__(self, batch: StepBatch) -> LatentStep:
        """See ``LatentAttention``."""
        return _Step(batch, self._rank, batch.num_prefills)


class Expanded:
    """Everything expanded: what the absorbed way is held to."""

    def __init__(self, kv_lora_rank: int) -> None:
        self._rank = kv_lora_rank

    def __call__(self, batch: StepBatch) -> LatentStep:
        """See ``LatentAttention``."""
        return _Step(batch, self._rank, len(batch.query_lens))


class _Step:
    """The first ``num_expanded`` sequences expanded, the others absorbed."""

    def __init__(self, batch: StepBatch, rank: int, num_expanded: int) -> None:
        self._slots, self._rank = batch.slot_mapping, rank
        counts = batch.query_lens
        self._split = sum(counts[:num_expanded])
        lengths = batch.seq_lens[:num_expanded].tolist()
        self._chunks = [
            (count, length, batch.block_tables[seq, : -(-length // batch.block_size)].long())
            for seq, (count, length) in enumerate(zip(counts, lengths, strict=False))
        ]
        for count, length, _ in self._chunks:
            if count > length:
                raise ValueError(f"seq_lens has {length} for a sequence of {count} new tokens")
        self._tables, self._lengths = _rows(batch, num_expanded)

    def __call__(
        self, query: torch.Tensor, latent: torch.Tensor, up: UpProjection, cache: torch.Tensor
    ) -> torch.Tensor:
        """See ``LatentStep``."""
        width = latent.shape[-1]
        cache.view(-1, width).index_copy_(0, self._slots, latent)
        scale, split = query.shape[-1] ** -0.5, self._split
        out = query.new_empty((*query.shape[:2], up.value.shape[-1]))
        start = 0
        for count, length, pages in self._chunks:
            seen = cache[0, pages].view(-1, width)[:length]
            out[start : start + count] = expanded(query[start : start + count], seen, up, scale)
            start += count
        if split < len(query):
            own = (cache[0], self._tables, self._lengths)
            out[split:] = absorbed(query[split:], *own, up, scale)
        return out


def _rows(batch: StepBatch, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Block tables and lengths of every new token from sequence ``first`` on.

    A draft is a row of its own: it sees the text up to itself, as a shorter sequence would.
    """
    tables, lengths, counts = batch.block_tables, batch.seq_lens, batch.query_lens[first:]
    if all(count == 1 for count in counts):
        return tables[first:], lengths[first:]
    repeats = torch.tensor(counts, device=tables.device)
    behind = [count - 1 - i for count in counts for i in range(count)]
    after = torch.tensor(behind, dtype=torch.int32, device=tables.device)
    return (
        tables[first:].repeat_interleave(repeats, dim=0),
        lengths[first:].repeat_interleave(repeats) - after,
    )


def expanded(
    query: torch.Tensor, seen: torch.Tensor, up: UpProjection, scale: float
) -> torch.Tensor:
    """The newest tokens of one sequence attend to all of it, keys and values made from latents.

    Args:
        query: [count, num_heads, nope + rope].
        seen: [length, kv_lora_rank + rope], cached rows; the last ``count`` are the queries' own.
        scale: factor of q·k.

    Returns:
        [count, num_heads, v_head_dim].
    """
    count, length, (heads, nope, rank) = len(query), len(seen), up.key.shape
    both = up.both(seen[:, :rank]).view(length, heads, -1)
    rotated = seen[:, None, rank:].expand(-1, heads, -1)
    key = torch.cat((both[..., :nope], rotated), dim=-1)
    mask = torch.ones(count, length, dtype=torch.bool, device=query.device).tril(length - count)
    asked, keys, values = (part.transpose(0, 1) for part in (query, key, both[..., nope:]))
    found = scaled_dot_product_attention(asked, keys, values, attn_mask=mask, scale=scale)
    return found.transpose(0, 1)


def absorbed(
    query: torch.Tensor,
    pages: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    up: UpProjection,
    scale: float,
) -> torch.Tensor:
    """One query per sequence attends to latents as they are: q·(U c) = (Uᵀ q)·c.

    Args:
        query: [num_seqs, num_heads, nope + rope].
        pages: [num_blocks, block_size, kv_lora_rank + rope].
        block_tables, seq_lens: as for ``kernels.mla_decode``.

    Returns:
        [num_seqs, num_heads, v_head_dim].
    """
    nope = up.key.shape[1]
    inside = torch.einsum("shn,hnr->shr", query[..., :nope], up.key)
    asked = torch.cat((inside, query[..., nope:]), dim=-1)
    rank = up.key.shape[2]
    mixed = mla_decode(asked, pages, block_tables, seq_lens, scale, kv_lora_rank=rank)
    return torch.einsum("shr,hrv->shv", mixed, up.value)
