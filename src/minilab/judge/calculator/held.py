"""Held: what a token and a sequence keep in the KV cache of one GPU, in bytes.

    one layer, heads    2 * max(1, ceil(kv_heads / tp)) * head_dim * size
    one layer, MLA      (latent + rope) * size, the same on every rank
    a sequence of T     layers * entry * ceil(min(T, window) / stride), over the groups of layers

``facts.kv_layout`` and ``facts.model_spec`` say the same; a test holds the two together.
"""

import math
from typing import Any


class Held:
    """The KV cache of one model in one format on one of ``tp`` GPUs.

    Attributes:
        groups: layers that keep alike: [layers, kv_heads, head_dim, latent, rope, window, stride].
        size: bytes of a number; block: tokens of a block.
        per_token: bytes of a token while all layers keep it; full: in layers that always do.
        indexer: bytes per token of a sparse-attention indexer; state: bytes per sequence of linear
            layers; uniform: every layer keeps every token.
    """

    def __init__(self, model: dict[str, Any], size: float, tp: int, block: int) -> None:
        self.groups = model["groups"]
        self.size = int(size)
        self.tp = tp
        self.block = block
        self.indexer = model["indexer"]
        self.state = model["state"][str(tp)]
        self.uniform = model["uniform"]
        self.per_token = self._each(self.groups)
        self.full = self._each([group for group in self.groups if not group[5]])

    def entry(self, group: list[int]) -> int:
        """Bytes of one cached entry of one layer."""
        if group[3]:
            return (group[3] + group[4]) * self.size
        return 2 * self.heads(group) * group[2] * self.size

    def heads(self, group: list[int]) -> int:
        """KV heads on one GPU; a head is never split."""
        return max(1, math.ceil(group[1] / self.tp))

    def sequence(self, tokens: int) -> int:
        """Bytes of a sequence of ``tokens`` in whole blocks."""
        whole = math.ceil(tokens / self.block) * self.block
        held = self.state + self.indexer * whole
        for group in self.groups:
            kept = min(whole, group[5]) if group[5] else whole
            held += group[0] * self.entry(group) * math.ceil(kept / group[6])
        return int(held)

    def _each(self, groups: list[list[int]]) -> int:
        return math.ceil(sum([group[0] * self.entry(group) / group[6] for group in groups]))
