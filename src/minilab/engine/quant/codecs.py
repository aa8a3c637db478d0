"""Codecs: number formats of a KV cache, each as encode and decode of numbers already scaled.

A value is stored as code(value / scale) and read as decode(code) * scale. e4m3 is the kernels' own
portable codec; the others are contrasts: e5m2 (more range, less precision), int8 and int4 (evenly
spaced steps, symmetric, so that zero is exact).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name
from minilab.kernels import e4m3


@dataclass(frozen=True)
class Codec:
    """A number format.

    Attributes:
        largest: the largest magnitude that can be stored; beyond it values saturate.
        bits: per number.
        encode: fp32 of any shape to uint8 codes of that shape (int4: one code a byte; ``pack``).
        decode: codes to fp32, exact.
    """

    name: str
    largest: float
    bits: int
    encode: Callable[[torch.Tensor], torch.Tensor]
    decode: Callable[[torch.Tensor], torch.Tensor]

    def round_trip(self, values: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
        """What is read back after ``values`` were stored with ``scale`` (broadcast)."""
        return self.decode(self.encode(values.float() / scale)) * scale


def _encode_e5m2(values: torch.Tensor) -> torch.Tensor:
    """fp16's upper byte, rounded to nearest even; saturates at 57,344 instead of infinity."""
    within = values.clamp(-57_344.0, 57_344.0)
    return within.to(torch.float8_e5m2).view(torch.uint8)


def _decode_e5m2(codes: torch.Tensor) -> torch.Tensor:
    return (codes.to(torch.int16) << 8).view(torch.float16).float()


def _integer(
    limit: int,
) -> tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
    def encode(values: torch.Tensor) -> torch.Tensor:
        return values.round().clamp(-limit, limit).to(torch.int8).view(torch.uint8)

    def decode(codes: torch.Tensor) -> torch.Tensor:
        return codes.view(torch.int8).float()

    return encode, decode


CODECS = {
    codec.name: codec
    for codec in (
        Codec("e4m3", e4m3.LARGEST, 8, e4m3.encode, e4m3.decode),
        Codec("e5m2", 57_344.0, 8, _encode_e5m2, _decode_e5m2),
        Codec("int8", 127.0, 8, *_integer(127)),
        Codec("int4", 7.0, 4, *_integer(7)),
    )
}


def codec(name: str) -> Codec:
    """The codec called ``name``. Raises InputError."""
    if name not in CODECS:
        raise unknown_name("number format", name, CODECS)
    return CODECS[name]


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """int4 codes [..., 2 n] uint8 as [..., n]: the even one in the low half of the byte."""
    if codes.shape[-1] % 2:
        raise InputError(f"int4 packs pairs; the last dimension is {codes.shape[-1]}; make it even")
    low, high = codes[..., 0::2] & 15, codes[..., 1::2] & 15
    return low | high << 4


def unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Undo ``pack_nibbles``: int4 codes with their sign, [..., 2 n] uint8."""
    both = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
    return torch.where(both > 7, both | 0xF0, both)
