"""Absorbed MLA decode: bytes against FLOPs per context token, and where the second takes over.

Absorbed, all query heads share one cached vector of ``latent + rope`` numbers. A context token is
read once and used by every head and query: 2 * (latent + rope) FLOPs for the score and 2 * latent
for the sum, each. With h heads and s queries that is about ``2 * h * s`` FLOPs a byte (bf16), so
from some ``h * s`` on decode is bound by compute, as prefill is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU
from minilab.facts.models import ModelSpec

E_MLA = 660 / 989
"""Share of the bf16 peak that absorbed decode reaches (FlashMLA's README: 660 TFLOPS, H800)."""


class MlaTime(NamedTuple):
    """Seconds per context token and sequence on one GPU, all layers: reading, and computing."""

    read: float
    compute: float

    @property
    def extra(self) -> float:
        """What computing adds to reading where it is the longer one (the two overlap)."""
        return max(0.0, self.compute - self.read)


def mla_time(
    model: ModelSpec,
    gpu: GPU,
    *,
    tp: int = 1,
    query_tokens: int = 1,
    kv_dtype: str = "bf16",
    e_mem: float = 1.0,
    e_mla: float = E_MLA,
) -> MlaTime:
    """``model``'s absorbed decode with ``query_tokens`` queries per sequence (1 + drafts).

    Tensor parallelism divides the heads, not the bytes: each GPU reads the whole latent. (0, 0)
    for a model without MLA, or one whose cache is compressed along the sequence.
    """
    if query_tokens < 1:
        raise InputError(f"query_tokens is {query_tokens}; give 1 or more")
    if not model.kv_lora or model.strides:
        return MlaTime(0.0, 0.0)
    size = model.full_kv_bytes_per_token(kv_dtype)
    heads = math.ceil(model.heads / tp)
    flops = query_tokens * heads * 2 * (2 * model.kv_lora + model.rope_dim) * model.full_layers
    return MlaTime(size / (gpu.mem_bw * e_mem), flops / (gpu.flops_at("bf16") * e_mla))


def balance_heads(flops: float, bandwidth: float) -> float:
    """The ``h * s`` at which bytes and FLOPs take equally long, by the rule ``2 * h * s`` FLOP/B.

    FlashMLA's arithmetic: 865 TFLOPS (an H800's peak at its real clock) and 3.35 TB/s give 129.
    """
    return flops / bandwidth / 2
