"""KVPool: how vLLM cuts KV memory into blocks when layers differ, after its hybrid KV manager.

Every block of the pool has the same bytes, so layers are sorted into groups of equally many layers
with equally large pages; each group has its own block table and takes blocks from the one pool.

    page           block_size * bytes per token of one layer; smaller pages grow more tokens
    bytes a block  layers per group * page
    blocks         floor(KV bytes / bytes a block)
    printed        blocks // groups * block_size            ("GPU KV cache size", up to about 0.20)
                   int(blocks / blocks per request * len)   (later versions, for their max-len len)

Read in vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py of forks from 0.9 to 0.32,
2026-11-29. What a request takes there includes the tokens of one prefill chunk in windowed layers:
that is a reserve for the worst moment, not what a decoding request holds (``ModelSpec.kv_bytes``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minilab.facts.errors import InputError
from minilab.facts.models import ModelSpec

STATE_ALIGNMENT = 16
"""Tokens to which vLLM rounds the attention block that must hold a linear layer's state."""


@dataclass(frozen=True)
class PoolGroup:
    """``count`` block tables of layers that keep alike.

    ``window`` 0: all tokens; ``state``: one block a request, whatever its length. ``block_size`` is
    the tokens that one of its blocks holds.
    """

    kind: str
    count: int
    layers: int
    block_size: int
    window: int = 0
    state: bool = False

    def blocks(self, tokens: int, chunk: int) -> int:
        """Blocks that a request of ``tokens`` takes in one of these tables at its worst moment."""
        if self.state:
            return 1
        if not self.window:
            return math.ceil(tokens / self.block_size)
        held = min(self.window - 1 + chunk, tokens)
        return math.ceil(held / self.block_size) + 1


@dataclass(frozen=True)
class KVPool:
    """The groups, what a block takes, and how many layers of padding that wastes."""

    groups: tuple[PoolGroup, ...]
    page_bytes: int
    layers_per_group: int
    block_size: int
    padding_layers: int
    indexer_bytes: int = 0

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of the pool on one GPU, a sparse-attention indexer's included."""
        return self.page_bytes * self.layers_per_group + self.indexer_bytes

    @property
    def tables(self) -> int:
        """Block tables a request has: the number of KV cache groups in vLLM's words."""
        return sum(group.count for group in self.groups)

    def blocks(self, avail_bytes: float) -> int:
        """Blocks that fit: ``num_gpu_blocks``."""
        return max(0, math.floor(avail_bytes / self.block_bytes))

    def printed_tokens(self, avail_bytes: float) -> int:
        """ "GPU KV cache size" as versions before the capacity was made group-aware print it."""
        return self.blocks(avail_bytes) // self.tables * self.block_size

    def request_blocks(self, tokens: int, chunk: int) -> int:
        """Blocks reserved for one request of ``tokens`` when a step takes ``chunk`` tokens."""
        return sum(group.count * group.blocks(tokens, chunk) for group in self.groups)

    def concurrency(self, avail_bytes: float, tokens: int, chunk: int) -> float:
        """ "Maximum concurrency for N tokens per request" as vLLM prints it."""
        return self.blocks(avail_bytes) / self.request_blocks(tokens, chunk)


def kv_pool(
    model: ModelSpec,
    dtype: str = "bf16",
    tp: int = 1,
    block_size: int = 16,
    extra_full: int = 0,
) -> KVPool | None:
    """vLLM's pool for ``model`` on one of ``tp`` GPUs; None where its rules are not modelled.

    ``extra_full``: draft layers of the model's own full-attention shape (MTP, EAGLE).
    Not modelled: compressed caches (DeepSeek-V4), an MLA latent beside windowed layers.
    """
    if block_size < 1:
        raise InputError(f"block_size is {block_size}; give a whole number of 1 or more")
    if model.strides:
        return None
    kinds = _kinds(model, dtype, tp, extra_full)
    if not kinds:
        return None
    state = math.ceil(model.state_bytes(tp) / model.linear_layers) if model.linear_layers else 0
    pages = {kind: per_token * block_size for kind, (_, per_token, _) in kinds.items()}
    sizes = dict.fromkeys(pages, block_size)
    if state:
        largest = max(per_token for _, per_token, _ in kinds.values())
        needed = math.ceil(state / (STATE_ALIGNMENT * largest)) * STATE_ALIGNMENT
        block_size = max(block_size, needed)
        sizes = dict.fromkeys(pages, block_size)
        pages = {kind: per_token * block_size for kind, (_, per_token, _) in kinds.items()}
    page = max(pages.values())
    for kind, small in pages.items():
        if page % small == 0:
            sizes[kind] = block_size * (page // small)
    counts = {kind: layers for kind, (layers, _, _) in kinds.items()}
    if model.linear_layers:
        counts["state"] = model.linear_layers
    size = min(counts.values())
    if max(counts.values()) < 1.5 * size:
        size = max(counts.values())
    groups = tuple(
        PoolGroup(
            kind,
            math.ceil(layers / size),
            layers,
            sizes.get(kind, block_size),
            kinds[kind][2] if kind in kinds else 0,
            kind == "state",
        )
        for kind, layers in counts.items()
    )
    padding = sum(group.count * size - group.layers for group in groups)
    smallest = min(sizes.values())
    indexer = model.index_bytes_per_token * smallest
    return KVPool(groups, page, size, smallest, padding, indexer)


def _kinds(
    model: ModelSpec, dtype: str, tp: int, extra_full: int
) -> dict[str, tuple[int, int, int]]:
    """{kind: (layers, bytes per token of one layer, window)} of the attention layers."""
    found = {}
    for group in model.kv_groups:
        kind = "window" if group.window else "full"
        extra = 0 if group.window else extra_full
        found[kind] = (group.layers + extra, group.entry_bytes(dtype, tp), group.window)
    return found
