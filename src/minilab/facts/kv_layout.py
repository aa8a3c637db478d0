"""Number formats, and KVGroup: layers that keep the same bytes per token in the KV cache."""

from __future__ import annotations

import math
from typing import NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name

DTYPE_BYTES = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0,
    "fp4": 0.5 + 1 / 16,  # NVFP4: 4 bits and an fp8 scale per 16 weights
    "mxfp4": 0.5 + 1 / 32,  # 4 bits and an 8-bit exponent per 32
    "int4": 0.5 + 2.5 / 128,  # GPTQ, AWQ: 4 bits, an fp16 scale and a 4-bit zero per 128
    "int4-g32": 0.5 + 2 / 32,  # 4 bits and a bf16 scale per 32
}  # fmt: skip
KV_DTYPES = (
    "bf16", "fp16", "fp8", "int8", "fp32", "fp8_ds_mla", "fp8_per_token_head",
    "int8_per_token_head", "int4_per_token_head", "nvfp4",
)  # fmt: skip
_KV_BITS = {"nvfp4": 4, "int4_per_token_head": 4, "fp8_per_token_head": 8, "int8_per_token_head": 8}
_ALIASES = {
    "auto": "bf16", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "e4m3": "fp8", "e5m2": "fp8",
}  # fmt: skip


def kv_dtype(name: str) -> str:
    """``name``, or what an engine's word for it means here ("fp8_e4m3", "auto"). InputError."""
    word = _ALIASES.get(name.strip().lower(), name.strip().lower())
    if word not in KV_DTYPES:
        raise unknown_name("KV dtype", name, KV_DTYPES)
    return word


def dtype_bytes(dtype: str) -> float:
    """Bytes per weight stored as ``dtype``, its scales included. Raises InputError."""
    if dtype not in DTYPE_BYTES:
        raise unknown_name("dtype", dtype, DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


class KVGroup(NamedTuple):
    """Layers that cache alike. ``window`` 0: every token is kept; ``latent``: MLA."""

    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    latent: int = 0
    rope: int = 0
    window: int = 0
    stride: int = 1  # tokens that share one cached entry

    def entry_bytes(self, dtype: str, tp: int) -> int:
        """Bytes of one cached entry of one layer on one of ``tp`` GPUs (FACTS 2.1).

        Keys and values of ``ceil(kv_heads / tp)`` heads; a latent is a single vector that every
        rank needs whole. ``fp8_ds_mla`` is FlashMLA's layout: fp8 latent, rope part in bf16, and an
        fp32 scale per 128 (656 bytes for 512 + 64) or, where 128 does not divide the latent, eight
        bytes of exponents (584 for 448 + 64, DeepSeek-V4). The ``per_token_head`` formats keep an
        fp32 scale per key and value vector, ``nvfp4`` an fp8 scale per 16 numbers.
        """
        if dtype not in KV_DTYPES:
            raise unknown_name("KV dtype", dtype, KV_DTYPES)
        if dtype == "fp8_ds_mla":
            if not self.latent:
                raise InputError("KV dtype 'fp8_ds_mla' needs an MLA model; use fp8")
            scales = 8 if self.latent % 128 else 4 * (self.latent // 128)
            return self.latent + scales + 2 * self.rope
        if dtype in _KV_BITS:
            if self.latent:
                raise InputError(f"KV dtype {dtype!r} is for heads, not for an MLA latent; use fp8")
            scale = math.ceil(self.head_dim / 16) if dtype == "nvfp4" else 4
            vector = math.ceil(self.head_dim * _KV_BITS[dtype] / 8) + scale
            return 2 * max(1, math.ceil(self.kv_heads / tp)) * vector
        size = int(DTYPE_BYTES[dtype])
        if self.latent:
            return (self.latent + self.rope) * size
        return 2 * max(1, math.ceil(self.kv_heads / tp)) * self.head_dim * size

    def bytes_for(self, tokens: int, dtype: str, tp: int) -> int:
        """Bytes that ``tokens`` tokens of one sequence take in these layers."""
        kept = min(tokens, self.window) if self.window else tokens
        return self.layers * self.entry_bytes(dtype, tp) * math.ceil(kept / self.stride)
