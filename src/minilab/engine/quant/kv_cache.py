"""QuantisedKV: the engine's paged KV cache in another number format.

FP8 (e4m3) with scales per tensor or per head goes through the kernels: as uint8 with the portable
codec everywhere, as float8 with the hardware's conversion where the GPU has one. The contrasts
(e5m2, int8, int4) and scales per token-head have no kernel here: they are gathered, decoded and
attended in plain torch, on any device. ``backend`` says which of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.engine.attention import Attention, AttentionStep, KernelAttention
from minilab.engine.batch import StepBatch
from minilab.engine.config import DecoderConfig
from minilab.engine.quant.codecs import codec, pack_nibbles, unpack_nibbles
from minilab.engine.quant.kv_format import KVFormat
from minilab.engine.quant.scales import vector_scale
from minilab.facts.errors import InputError
from minilab.kernels.paged_ref import attend_ref

NATIVE_FROM = (8, 9)
"""CUDA capability from which the hardware converts to and from e4m3."""


@dataclass(frozen=True)
class CodeCache:
    """Codes and, per token-head, their scales.

    Attributes:
        codes: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim] uint8 or float8_e4m3;
            int4: head_dim / 2.
        scales: fp32 [..., num_kv_heads, 1] beside the codes, or None.
    """

    codes: torch.Tensor
    scales: torch.Tensor | None

    @property
    def nbytes(self) -> int:
        """Memory of codes and scales together."""
        return self.codes.nbytes + (0 if self.scales is None else self.scales.nbytes)


@dataclass(frozen=True)
class QuantisedKV:
    """A cache in ``format`` ("e4m3", "e5m2", "int8", "int4"), for ``LLM(..., kv=...)``.

    ``native``: e4m3 by the hardware's conversion instead of the portable codec.
    """

    format: KVFormat
    native: bool = False

    def __post_init__(self) -> None:
        codec(self.format.name)
        if self.native and not self.by_kernel:
            raise InputError("native FP8 is for e4m3 with scales per tensor or per head")

    @property
    def by_kernel(self) -> bool:
        """Whether the kernels read and write this cache."""
        return self.format.name == "e4m3" and self.format.granularity != "token-head"

    @property
    def backend(self) -> str:
        """For people: what reads and writes this cache."""
        if not self.by_kernel:
            return "plain torch"
        return "kernels, hardware FP8" if self.native else "kernels, portable FP8"

    def new_cache(
        self, config: DecoderConfig, num_blocks: int, block_size: int, device: torch.device
    ) -> CodeCache:
        """An empty cache for ``Decoder``. Raises InputError where the device lacks native FP8."""
        if self.native:
            _check_native(device)
        four = codec(self.format.name).bits == 4
        rows = (config.num_layers, 2, num_blocks, block_size, config.num_kv_heads)
        width = config.head_dim // 2 if four else config.head_dim
        kind = torch.float8_e4m3fn if self.native else torch.uint8
        codes = torch.zeros((*rows, width), dtype=torch.uint8, device=device).view(kind)
        per_vector = self.format.granularity == "token-head"
        scales = torch.ones((*rows, 1), device=device) if per_vector else None
        return CodeCache(codes, scales)

    def attention(self, cache: CodeCache) -> Attention:
        """What reads and writes ``cache``, for ``Decoder``."""
        layers, device = len(cache.codes), cache.codes.device
        if not self.by_kernel:
            return _GatherAttention(self.format, cache)
        scales = self.format.scales
        assert scales is not None
        pairs = [scales.of_layer(layer) for layer in range(layers)]
        return KernelAttention([(k.to(device), v.to(device)) for k, v in pairs])


def _check_native(device: torch.device) -> None:
    found = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if found is None or found < NATIVE_FROM:
        has = "is no GPU" if found is None else f"has capability {found[0]}.{found[1]}"
        raise InputError(
            f"native FP8 needs capability {NATIVE_FROM[0]}.{NATIVE_FROM[1]}, {device} {has}; use "
            "the portable codec (native=False)"
        )


class _GatherAttention:
    def __init__(self, format: KVFormat, cache: CodeCache) -> None:
        self._format, self._cache = format, cache

    def __call__(self, batch: StepBatch) -> AttentionStep:
        """See ``attention.Attention``."""
        return _GatherStep(self._format, self._cache, batch)


class _GatherStep:
    """One step: encode and write the new tokens, then sequence by sequence decode and attend."""

    def __init__(self, format: KVFormat, cache: CodeCache, batch: StepBatch) -> None:
        self._format, self._cache, self._batch = format, cache, batch
        self._codec = codec(format.name)
        self._layer = 0

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor
    ) -> torch.Tensor:
        """See ``attention.AttentionStep``."""
        layer = self._layer
        self._layer += 1
        for side, new in enumerate((key, value)):
            self._write(layer, side, new)
        out, starts = torch.empty_like(query), self._batch.row_starts
        lengths = self._batch.seq_lens.tolist()
        for seq, length in enumerate(lengths):
            keys, values = (self._read(layer, s, seq, length, query.dtype) for s in (0, 1))
            rows = slice(starts[seq], starts[seq + 1])
            scale = query.shape[-1] ** -0.5
            out[rows] = attend_ref(query[rows], keys, values, scale, None)
        return out

    def _write(self, layer: int, side: int, new: torch.Tensor) -> None:
        slots, size = self._batch.slot_mapping, self._batch.block_size
        at = (slots // size, slots % size)
        scale = self._scale(layer, side)
        if scale is None:
            scale = vector_scale(new, self._codec)
            assert self._cache.scales is not None
            self._cache.scales[layer, side][at] = scale
        codes = self._codec.encode(new.float() / scale)
        self._cache.codes[layer, side][at] = pack_nibbles(codes) if self._four else codes

    def _read(
        self, layer: int, side: int, seq: int, length: int, dtype: torch.dtype
    ) -> torch.Tensor:
        size = self._batch.block_size
        blocks = self._batch.block_tables[seq, : -(-length // size)].long()

        def gather(pages: torch.Tensor) -> torch.Tensor:
            return pages[layer, side][blocks].flatten(0, 1)[:length]

        codes = gather(self._cache.codes)
        values = self._codec.decode(unpack_nibbles(codes) if self._four else codes)
        scale = self._scale(layer, side)
        if scale is None:
            assert self._cache.scales is not None
            scale = gather(self._cache.scales)
        return (values * scale).to(dtype)

    @property
    def _four(self) -> bool:
        return self._codec.bits == 4

    def _scale(self, layer: int, side: int) -> torch.Tensor | None:
        """[1 or num_kv_heads, 1] of scales found beforehand; None where each vector has its own."""
        if self._format.scales is None:
            return None
        found = self._format.scales.of_layer(layer)[side]
        return found.reshape(-1, 1).to(self._cache.codes.device)


def bytes_per_token(format: KVFormat, config: DecoderConfig) -> float:
    """KV bytes of one token in ``format``, all layers."""
    numbers = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return numbers * format.bits_per_number(config.head_dim) / 8
