"""KVFormat: how one layer's keys and values look after a trip through the cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.engine.quant.codecs import codec
from minilab.engine.quant.scales import GRANULARITIES, KVScales, vector_scale
from minilab.facts.errors import InputError


@dataclass(frozen=True)
class KVFormat:
    """A cache format: a number format and its scales, or 16-bit floats.

    Attributes:
        name: "fp32" (nothing happens), "bf16", or a name in ``codecs.CODECS``.
        scales: found beforehand; None with ``granularity`` "token-head".
        granularity: "token-head" computes a scale for each key and value vector as it is written.
    """

    name: str = "fp32"
    scales: KVScales | None = None
    granularity: str = "tensor"

    def __post_init__(self) -> None:
        if self.name in ("fp32", "bf16"):
            return
        codec(self.name)
        if self.granularity not in GRANULARITIES:
            raise InputError(f"granularity {self.granularity!r}; known: {', '.join(GRANULARITIES)}")
        if self.granularity == "token-head":
            return
        if self.scales is None:
            raise InputError(f"{self.name} per {self.granularity} needs scales; calibrate first")
        if self.scales.format != self.name:
            raise InputError(
                f"scales are for {self.scales.format}, the cache is {self.name}; calibrate again"
            )

    def bits_per_number(self, head_dim: int) -> float:
        """Bits a cached number takes, scales that are stored with it included."""
        if self.name in ("fp32", "bf16"):
            return 32.0 if self.name == "fp32" else 16.0
        extra = 32 / head_dim if self.granularity == "token-head" else 0.0
        return codec(self.name).bits + extra

    def stored(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [num_tokens, num_kv_heads, head_dim] as attention will read them."""
        if self.name == "fp32":
            return keys, values
        if self.name == "bf16":
            return keys.bfloat16().to(keys.dtype), values.bfloat16().to(values.dtype)
        kind = codec(self.name)
        if self.granularity == "token-head":
            both = (kind.round_trip(x, vector_scale(x, kind)).to(x.dtype) for x in (keys, values))
        else:
            assert self.scales is not None
            pairs = zip((keys, values), self.scales.of_layer(layer), strict=True)
            both = (kind.round_trip(x, s.reshape(-1, 1)).to(x.dtype) for x, s in pairs)
        key, value = both
        return key, value
