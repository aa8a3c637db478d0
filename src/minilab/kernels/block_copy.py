"""block_copy: gather scattered KV blocks into one staging buffer, and scatter them back.

A transfer pays for each contiguous piece it is given. The blocks of a request lie anywhere in the
cache, in every layer; gathered first, they travel as one piece. Bytes are moved, not numbers, so
any dtype will do and the copy is exact.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import math

import torch

from minilab.kernels import checks
from minilab.kernels.device import choose_backend, tl, triton
from minilab.kernels.spec import ARCHS, Config, Spec, config_for


@triton.jit
def _copy_kernel(
    staging, cache, block_ids, num_ids, num_blocks, words,
    GATHER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK words of one block in one plane (a layer's keys, say)."""
    entry, part, plane = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    block = tl.load(block_ids + entry).to(tl.int64)
    at = part * BLOCK + tl.arange(0, BLOCK)
    there = at < words
    packed = staging + (plane * num_ids + entry) * words + at
    spread = cache + (plane * num_blocks + block) * words + at
    if GATHER:
        tl.store(packed, tl.load(spread, mask=there), mask=there)
    else:
        tl.store(spread, tl.load(packed, mask=there), mask=there)


def gather_blocks(
    cache: torch.Tensor,
    block_ids: torch.Tensor,
    dim: int = 0,
    *,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """The blocks ``block_ids`` of ``cache`` side by side: index_select(cache, dim, block_ids).

    Args:
        cache: any dtype, contiguous, with num_blocks as dimension ``dim``: [num_blocks, ...] for
            one layer, [num_layers, 2, num_blocks, ...] with dim=2 for all of them in one call.
        block_ids: [n] int32 or int64.
        config: tile to use instead of CONFIGS.
        backend: "auto", "triton", "interpreter" or "reference".
        out: staging buffer, cache's shape with n in place of num_blocks.
        debug: also read block_ids on a GPU to check them (waits for it).

    Returns:
        ``out``, or a new tensor.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shape = _check(cache, block_ids, dim, debug, twice=True)
    out = checks.output(out, shape, cache.dtype, cache)
    return _copy("gather_blocks", out, cache, block_ids, dim, config, backend)


def scatter_blocks(
    staging: torch.Tensor,
    cache: torch.Tensor,
    block_ids: torch.Tensor,
    dim: int = 0,
    *,
    config: Config | None = None,
    backend: str = "auto",
    debug: bool = False,
) -> torch.Tensor:
    """The way back: block i of ``staging`` is written to block ``block_ids[i]`` of ``cache``.

    Arguments and errors as for ``gather_blocks``; no block may be named twice. Returns ``cache``.
    """
    shape = _check(cache, block_ids, dim, debug, twice=False)
    if not isinstance(staging, torch.Tensor):
        raise ValueError(f"staging is {type(staging).__name__}; it must be a tensor")
    checks.output(staging, shape, cache.dtype, cache, name="staging")
    _copy("scatter_blocks", staging, cache, block_ids, dim, config, backend)
    return cache


def _copy(
    name: str,
    staging: torch.Tensor,
    cache: torch.Tensor,
    block_ids: torch.Tensor,
    dim: int,
    config: Config | None,
    backend: str,
) -> torch.Tensor:
    gather = name == "gather_blocks"
    chosen = choose_backend(name, cache.device, backend)
    if chosen.name == "reference":
        if gather:  # as gather_blocks_ref, into the buffer that is there
            return torch.index_select(cache, dim, block_ids.long(), out=staging)
        return scatter_blocks_ref(staging, cache, block_ids, dim)
    if not staging.numel():
        return staging
    planes, num_ids = math.prod(cache.shape[:dim]), block_ids.numel()
    packed, spread = _in_words(staging, cache, dim)
    words = packed.numel() // (planes * num_ids)
    config = config or config_for(CONFIGS, chosen.capability)
    parts = triton.cdiv(words, config.tiles["BLOCK"])
    _copy_kernel[(num_ids, parts, planes)](
        packed, spread, block_ids, num_ids, cache.shape[dim], words, gather, **config.tiles,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return staging


def gather_blocks_ref(cache: torch.Tensor, block_ids: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """The same in plain torch."""
    return cache.index_select(dim, block_ids.long())


def scatter_blocks_ref(
    staging: torch.Tensor, cache: torch.Tensor, block_ids: torch.Tensor, dim: int = 0
) -> torch.Tensor:
    """The same in plain torch."""
    return cache.index_copy_(dim, block_ids.long(), staging)


def _in_words(
    staging: torch.Tensor, cache: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as flat int32; as bytes where a block is no whole number of words, or begins in one."""
    size = cache.element_size()
    ends = (math.prod(cache.shape[dim + 1 :]), staging.storage_offset(), cache.storage_offset())
    word = torch.uint8 if any(size * end % 4 for end in ends) else torch.int32
    return staging.view(-1).view(word), cache.view(-1).view(word)


def _check(
    cache: torch.Tensor, block_ids: torch.Tensor, dim: int, debug: bool, twice: bool
) -> tuple[int, ...]:
    """Shape of the staging buffer. ``twice``: whether a block may be named more than once."""
    if not isinstance(cache, torch.Tensor) or not cache.is_contiguous():
        raise ValueError(f"cache is {_describe(cache)}; it must be a contiguous tensor")
    if not 0 <= dim < cache.dim():
        raise ValueError(f"dim is {dim}; it must be within 0 and {cache.dim() - 1}")
    shapes = checks.Shapes()
    shapes.check("block_ids", block_ids, "n", checks.INTS)
    if block_ids.device != cache.device:
        raise ValueError(f"block_ids is on {block_ids.device}; cache is on {cache.device}")
    num_blocks = cache.shape[dim]
    if shapes["n"] and checks.reads_values(block_ids, debug):
        checks.check_range("block_ids", block_ids, 0, num_blocks - 1, "num_blocks - 1")
        if not twice and block_ids.unique().numel() != shapes["n"]:
            raise ValueError("block_ids names a block twice; each must be written once")
    return (*cache.shape[:dim], shapes["n"], *cache.shape[dim + 1 :])


def _describe(cache: object) -> str:
    if isinstance(cache, torch.Tensor):
        return f"a tensor with strides {cache.stride()}"
    return type(cache).__name__


def cost(num_ids: int, block_bytes: int) -> tuple[int, int]:
    """(bytes, FLOPs): every byte read once and written once, an id of 4 bytes for each block."""
    return 2 * num_ids * block_bytes + 4 * num_ids, 0


CONFIGS = dict.fromkeys(ARCHS, Config({"BLOCK": 2048}, warps=4))


def _spec(label: str, gather: bool, fast: bool = False) -> Spec:
    types = {"staging": "*i32", "cache": "*i32", "block_ids": "*i32"}
    types |= dict.fromkeys(("num_ids", "num_blocks", "words"), "i32")
    return Spec(
        f"block_copy {label}", _copy_kernel, types, {"GATHER": gather}, CONFIGS,
        any_value=("num_ids", "num_blocks"), fast=fast, case="1024 blocks of 64 KiB",
        dtype="int32", cost=cost(1024, 65_536),
    )  # fmt: skip


AOT = (_spec("gather", True, fast=True), _spec("scatter", False))
