"""moe_align: sort the (token, expert) pairs by expert, each expert's share padded to whole tiles.

A tile of a matrix product has one weight matrix, so its rows must belong to one expert. The order
within an expert stays that of the pairs, and each place is written by one program: no atomics, so
the same input gives the same order every time, and the sums of a model's output don't wobble.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from minilab.kernels import checks
from minilab.kernels.device import choose_backend, tl, triton
from minilab.kernels.spec import ARCHS, Config, Spec, config_for


class Aligned(NamedTuple):
    """``sorted_token_ids`` [capacity] int32: pairs (token * top_k + k) by expert; padding holds the
    number of pairs. ``expert_ids`` [capacity / block_size] int32: whose tile it is, -1 past the
    end. ``num_tokens_post_padded`` [1] int32: places in use."""

    sorted_token_ids: torch.Tensor
    expert_ids: torch.Tensor
    num_tokens_post_padded: torch.Tensor


@triton.jit
def _count_kernel(counts, topk_ids, num_pairs, BLOCK: tl.constexpr):
    """One program: one expert, how many pairs it has."""
    expert = tl.program_id(0)
    found = tl.zeros([BLOCK], tl.int32)
    for start in range(0, num_pairs, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        found += (tl.load(topk_ids + pair, mask=pair < num_pairs, other=-1) == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(found, 0))


@triton.jit
def _fill(where, value, first, end, BLOCK: tl.constexpr):
    """Store ``value`` to the places first .. end."""
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(where + at, at * 0 + value, mask=at < end)


@triton.jit
def _place_kernel(
    sorted_ids, expert_ids, post_padded, topk_ids, counts, num_pairs, num_blocks,
    EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: one expert's pairs in their order, its padding and its tiles."""
    expert, every = tl.program_id(0), tl.arange(0, BLOCK_E)
    count = tl.load(counts + every, mask=every < EXPERTS, other=0)
    blocks = (count + SIZE - 1) // SIZE
    first = tl.sum(tl.where(every < expert, blocks, 0), 0)
    end = first + tl.sum(tl.where(every == expert, blocks, 0), 0)
    _fill(expert_ids, expert, first, end, BLOCK)
    place = first * SIZE
    for start in range(0, num_pairs, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        mine = tl.load(topk_ids + pair, mask=pair < num_pairs, other=-1) == expert
        rank = tl.cumsum(mine.to(tl.int32), 0)
        tl.store(sorted_ids + place + rank - 1, pair, mask=mine)
        place += tl.max(rank, 0)
    if expert == EXPERTS - 1:
        tl.store(post_padded, end * SIZE)
        _fill(expert_ids, -1, end, num_blocks, BLOCK)
        end = num_blocks
    _fill(sorted_ids, num_pairs, place, end * SIZE, BLOCK)


def moe_align_block_size(
    topk_ids: torch.Tensor,
    block_size: int,
    num_experts: int,
    *,
    config: Config | None = None,
    backend: str = "auto",
    out: Aligned | None = None,
    debug: bool = False,
) -> Aligned:
    """Order pairs by expert, in tiles of ``block_size`` rows (vLLM's function of this name).

    Args:
        topk_ids: [num_tokens, top_k] int32; -1 is an expert that is not here: left out.
        block_size: rows of a tile.
        num_experts: experts that ids may name.
        config, backend: as for moe_router.
        out: results to write into, as long as ``capacity`` says.
        debug: also read topk_ids on a GPU to check them (waits for it).

    Returns:
        Aligned, its first array ``capacity`` long.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("topk_ids", topk_ids, "num_tokens top_k", (torch.int32,))
    checks.at_least("block_size", block_size, 1)
    checks.at_least("num_experts", num_experts, 1)
    if checks.reads_values(topk_ids, debug):
        checks.check_range("topk_ids", topk_ids, -1, num_experts - 1, "num_experts - 1")
    chosen = choose_backend("moe_align", topk_ids.device, backend)
    places = capacity(topk_ids.numel(), block_size, num_experts)
    sizes = (places, places // block_size, 1)
    given = out or (None, None, None)
    aligned = Aligned(
        *(
            checks.output(tensor, (size,), torch.int32, topk_ids, f"out.{name}")
            for tensor, size, name in zip(given, sizes, Aligned._fields, strict=True)
        )
    )
    if chosen.name == "reference":
        found = moe_align_block_size_ref(topk_ids, block_size, num_experts)
        for mine, its in zip(aligned, found, strict=True):
            mine.copy_(its)
        return aligned
    config = config or config_for(CONFIGS, chosen.capability)
    counts = torch.empty(num_experts, dtype=torch.int32, device=topk_ids.device)
    options = {**config.tiles, "num_warps": config.warps, "num_stages": config.stages}
    _count_kernel[(num_experts,)](counts, topk_ids, topk_ids.numel(), **options)
    _place_kernel[(num_experts,)](
        *aligned, topk_ids, counts, topk_ids.numel(), sizes[1],
        num_experts, triton.next_power_of_2(num_experts), block_size, **options,
    )  # fmt: skip
    return aligned


def capacity(num_pairs: int, block_size: int, num_experts: int) -> int:
    """Most places that ``num_pairs`` can need, a multiple of block_size: each expert that has any
    pads its last tile."""
    padded = num_pairs + min(num_experts, num_pairs) * (block_size - 1)
    return padded // block_size * block_size


def moe_align_block_size_ref(topk_ids: torch.Tensor, block_size: int, num_experts: int) -> Aligned:
    """The same in plain torch, expert by expert."""
    flat = topk_ids.flatten()
    places, tiles = [], []
    for expert in range(num_experts):
        pairs = (flat == expert).nonzero()[:, 0]
        blocks = -(-len(pairs) // block_size)
        places.append(pairs.to(torch.int32))
        places.append(flat.new_full((blocks * block_size - len(pairs),), flat.numel()))
        tiles.append(flat.new_full((blocks,), expert))
    used = sum(len(part) for part in places)
    room = capacity(flat.numel(), block_size, num_experts) - used
    places.append(flat.new_full((room,), flat.numel()))
    tiles.append(flat.new_full((room // block_size,), -1))
    return Aligned(torch.cat(places), torch.cat(tiles), flat.new_full((1,), used))


def cost(num_pairs: int, num_experts: int, block_size: int) -> tuple[int, int]:
    """(bytes, FLOPs): ids read once, places and tiles written once; nothing to compute."""
    places = capacity(num_pairs, block_size, num_experts)
    return 4 * (num_pairs + places + places // block_size), 0


CONFIGS = dict.fromkeys(ARCHS, Config({"BLOCK": 1024}, warps=4))


def _spec(label: str, kernel: Any, types: dict[str, str], **more: Any) -> Spec:
    types = {"topk_ids": "*i32", "counts": "*i32", "num_pairs": "i32", **types}
    constants = {"EXPERTS": 128, "BLOCK_E": 128, "SIZE": 64}
    return Spec(
        f"moe_align {label}", kernel, types, constants, CONFIGS,
        any_value=("num_pairs", "num_blocks"), **more,
    )  # fmt: skip


_OUT = {"sorted_ids": "*i32", "expert_ids": "*i32", "post_padded": "*i32", "num_blocks": "i32"}
AOT = (
    _spec("count", _count_kernel, {}),
    _spec(
        "place", _place_kernel, _OUT, fast=True, dtype="int32",
        case="4096 tokens, top 8 of 128, tiles of 64", cost=cost(32_768, 128, 64),
    ),
)  # fmt: skip
