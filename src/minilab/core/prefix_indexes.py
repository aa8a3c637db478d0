"""The two prefix indexes by name, each with the block pool that it needs."""

from __future__ import annotations

from minilab.core.block_hash import BlockHasher, SegmentHasher
from minilab.core.block_pool import BlockPool
from minilab.core.config import SchedulerConfig
from minilab.core.prefix_index import PrefixIndex
from minilab.core.radix_index import RadixIndex, RadixPool
from minilab.core.radix_tree import RadixTree


def make_index(
    config: SchedulerConfig, hasher: BlockHasher | None = None
) -> tuple[BlockPool, PrefixIndex]:
    """Pool and index of one scheduler. A radix tree compares text itself and uses no ``hasher``."""
    size, enabled = config.block_size, config.enable_prefix_caching
    if config.prefix_index == "radix":
        tree = RadixTree(size)
        radix = RadixPool(config.num_blocks, tree)
        return radix, RadixIndex(radix, tree, size, enabled)
    pool = BlockPool(config.num_blocks)
    return pool, PrefixIndex(pool, hasher or SegmentHasher(size), size, enabled)
