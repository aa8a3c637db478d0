"""Packing: how the blocks of a request become tensors to send, gathered or piece by piece.

A KV cache is [layers, 2, blocks, block_size, kv_heads, head_dim] (MLA: one plane of latents for the
two), so what lies in one place is a block of one layer's keys, or of its values. Sent as they lie,
a request is many small pieces; or ``block_copy`` first puts them side by side in a staging buffer,
which costs a copy at each end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from minilab.kernels.block_copy import gather_blocks, scatter_blocks

BLOCKS = 2
"""The dimension of a KV cache that counts its blocks."""


class Packing(Protocol):
    """Between a KV cache and the tensors on a wire."""

    def pack(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        """What to send for these blocks."""

    def space(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        """Tensors of that shape to receive into."""

    def unpack(self, parts: Sequence[torch.Tensor], block_ids: Sequence[int]) -> None:
        """Put what was received where it belongs."""


class Gathered:
    """One staging buffer for all blocks and layers; ``place`` is the device that the wire reads.

    The buffer is kept and only grows: to touch fresh memory costs more than to copy. What ``pack``
    or ``space`` returns is valid until the next call.
    """

    def __init__(self, kv_cache: torch.Tensor, place: torch.device) -> None:
        self._cache, self._place = kv_cache, place
        self._buffer = torch.empty(0, dtype=kv_cache.dtype, device=place)

    def pack(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        """See ``Packing``."""
        staging = self._staging(len(block_ids))
        if self._place == self._cache.device:
            return [gather_blocks(self._cache, self._ids(block_ids), BLOCKS, out=staging)]
        return [staging.copy_(gather_blocks(self._cache, self._ids(block_ids), BLOCKS))]

    def space(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        """See ``Packing``."""
        return [self._staging(len(block_ids))]

    def unpack(self, parts: Sequence[torch.Tensor], block_ids: Sequence[int]) -> None:
        """See ``Packing``."""
        (staging,) = parts
        scatter_blocks(staging.to(self._cache.device), self._cache, self._ids(block_ids), BLOCKS)

    def _staging(self, blocks: int) -> torch.Tensor:
        shape = list(self._cache.shape)
        shape[BLOCKS] = blocks
        count = math.prod(shape)
        if self._buffer.numel() < count:
            self._buffer = torch.empty(count, dtype=self._cache.dtype, device=self._place)
        return self._buffer[:count].view(shape)

    def _ids(self, block_ids: Sequence[int]) -> torch.Tensor:
        return torch.tensor(block_ids, dtype=torch.int64, device=self._cache.device)


class Pieces:
    """Every block of every layer by itself, from and to where it lies in the cache.

    If the wire cannot read the cache's device, each piece passes through a tensor on ``place``.
    """

    def __init__(self, kv_cache: torch.Tensor, place: torch.device) -> None:
        self._cache, self._place = kv_cache, place
        self._direct = kv_cache.device == place

    def pack(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        """See ``Packing``."""
        return [piece.to(self._place) for piece in self._pieces(block_ids)]

    def space(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        """See ``Packing``; the cache itself where that will do."""
        pieces = self._pieces(block_ids)
        if self._direct:
            return pieces
        return [torch.empty_like(piece, device=self._place) for piece in pieces]

    def unpack(self, parts: Sequence[torch.Tensor], block_ids: Sequence[int]) -> None:
        """See ``Packing``."""
        if not self._direct:
            for piece, part in zip(self._pieces(block_ids), parts, strict=True):
                piece.copy_(part)

    def _pieces(self, block_ids: Sequence[int]) -> list[torch.Tensor]:
        planes = self._cache.flatten(0, 1)
        return [plane[block] for plane in planes for block in block_ids]
