"""What attention means to the decoder, and the kernels' way of computing it."""

from __future__ import annotations

from collections.abc import Sequence
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


Scales = Sequence[tuple[torch.Tensor, torch.Tensor]]


class KernelAttention:
    """The kernels of ``minilab.kernels``; where they cannot run, their references.

    ``scales``: of keys and of values, a pair per layer, where the cache holds FP8.
    """

    def __init__(self, scales: Scales | None = None) -> None:
        self._scales = scales

    def __call__(self, batch: StepBatch) -> AttentionStep:
        """See ``Attention``."""
        return _KernelStep(batch, self._scales)


class _KernelStep:
    def __init__(self, batch: StepBatch, scales: Scales | None) -> None:
        self._batch = batch
        self._layers = None if scales is None else iter(scales)
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
        k_scale, v_scale = (None, None) if self._layers is None else next(self._layers)
        kv_write(key, value, keys, values, batch.slot_mapping, k_scale=k_scale, v_scale=v_scale)
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
                k_scale=k_scale,
                v_scale=v_scale,
            )
        if split == len(query):
            return out
        tables, lengths = batch.block_tables[chunks:], batch.seq_lens[chunks:]
        if self._longest_decode == 1:
            out[split:] = paged_decode(
                query[split:], keys, values, tables, lengths, k_scale=k_scale, v_scale=v_scale
            )
        else:  # drafts to verify: several tokens of a sequence see each other's past
            out[split:] = paged_prefill(
                query[split:],
                keys,
                values,
                tables,
                lengths,
                self._decode_starts,
                self._longest_decode,
                k_scale=k_scale,
                v_scale=v_scale,
            )
        return out
