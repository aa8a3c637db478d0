"""What attention means to the decoder, and the kernels' way of computing it."""

from __future__ import annotations

from typing import Protocol

import torch

from minilab.engine.batch import StepBatch
from minilab.kernels.kv_write import kv_write
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill


class AttentionStep(Protocol):
    """The attention of one step, called once per layer."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor
    ) -> torch.Tensor:
        """Write the new keys and values into ``cache``, then attend.

        Args:
            query: [num_tokens, num_heads, head_dim].
            key, value: [num_tokens, num_kv_heads, head_dim].
            cache: [2, num_blocks, block_size, num_kv_heads, head_dim], one layer's.

        Returns:
            [num_tokens, num_heads, head_dim].
        """
        ...


class Attention(Protocol):
    """Prepares the step of a batch: what is the same in every layer is done here, once."""

    def __call__(self, batch: StepBatch) -> AttentionStep: ...


class KernelAttention:
    """The kernels of ``minilab.kernels``; where they cannot run, their references."""

    def __call__(self, batch: StepBatch) -> AttentionStep:
        """See ``Attention``."""
        return _KernelStep(batch)


class _KernelStep:
    def __init__(self, batch: StepBatch) -> None:
        self._batch = batch
        chunks, starts = batch.num_prefills, batch.cu_seqlens
        self._prefill_starts = starts[: chunks + 1]
        self._decode_starts = starts[chunks:] - starts[chunks]
        self._longest_chunk = max(batch.query_lens[:chunks], default=0)
        self._longest_decode = max(batch.query_lens[chunks:], default=0)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor
    ) -> torch.Tensor:
        """See ``AttentionStep``."""
        batch = self._batch
        chunks, split = batch.num_prefills, batch.num_prefill_tokens
        keys, values = cache
        kv_write(key, value, keys, values, batch.slot_mapping)
        out = torch.empty_like(query)
        if chunks:
            out[:split] = paged_prefill(
                query[:split],
                keys,
                values,
                batch.block_tables[:chunks],
                batch.seq_lens[:chunks],
                self._prefill_starts,
                self._longest_chunk,
            )
        if split == len(query):
            return out
        tables, lengths = batch.block_tables[chunks:], batch.seq_lens[chunks:]
        if self._longest_decode == 1:
            out[split:] = paged_decode(query[split:], keys, values, tables, lengths)
        else:  # drafts to verify: several tokens of a sequence see each other's past
            out[split:] = paged_prefill(
                query[split:],
                keys,
                values,
                tables,
                lengths,
                self._decode_starts,
                self._longest_decode,
            )
        return out
