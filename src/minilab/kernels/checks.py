"""Argument checks of the wrappers: each error names the argument, what it was, what it must be.

What can be seen without reading the data (dtype, shape, strides, device) is checked on every call.
Values in index tensors are read on the CPU always; on a GPU, where reading them waits for the
device, only with ``debug=True``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minilab.kernels.device import Backend, native_fp8_refusal

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
FP8 = (torch.uint8, torch.float8_e4m3fn)
INTS = (torch.int32, torch.int64)
HEAD_SIZES = (16, 32, 64, 128, 256)

Scale = float | torch.Tensor | None


class Shapes:
    """Checks tensors one after the other; a dimension's name stands for one size throughout.

    The first tensor fixes the device. ``sizes[name]`` is what a dimension turned out to be.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._from: dict[str, str] = {}
        self._device: tuple[str, torch.device] | None = None

    def __getitem__(self, name: str) -> int:
        return self.sizes[name]

    def check(
        self,
        name: str,
        tensor: torch.Tensor,
        dims: str,
        dtypes: Sequence[torch.dtype],
        dense_from: int = 0,
    ) -> None:
        """``dims``: names of the dimensions, separated by blanks; a digit is a fixed size.
        Dimensions from ``dense_from`` on must lie densely, the ones before may have any stride.

        Raises:
            ValueError: dtype, number of dimensions, a size, strides or device are not as said.
        """
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} is {type(tensor).__name__}; it must be a tensor")
        names = dims.split()
        if tensor.dtype not in dtypes:
            allowed = " or ".join(short(dtype) for dtype in dtypes)
            raise ValueError(f"{name} is {short(tensor.dtype)}; it must be {allowed}")
        shown = f"{name} has shape {tuple(tensor.shape)}"
        if tensor.dim() != len(names):
            raise ValueError(f"{shown}; it must be [{', '.join(names)}]")
        for dim, size in zip(names, tensor.shape, strict=True):
            known = int(dim) if dim.isdigit() else self.sizes.setdefault(dim, size)
            self._from.setdefault(dim, name)
            if size != known:
                because = "" if dim.isdigit() else f", and {dim} is {known} in {self._from[dim]}"
                raise ValueError(f"{shown}; it must be [{', '.join(names)}]{because}")
        if not _dense(tensor, dense_from):
            raise ValueError(
                f"{name} has strides {tensor.stride()}; dimensions from {dense_from} on must be"
                f" contiguous: pass {name}.contiguous()"
            )
        if self._device is None:
            self._device = (name, tensor.device)
        elif tensor.device != self._device[1]:
            raise ValueError(f"{name} is on {tensor.device}; {self._device[0]} is on {self._device[1]}")


@dataclass(frozen=True)
class Pages:
    """Checked arguments of an attention over pages: what the launch and the reference share."""

    shapes: Shapes
    k_scale: torch.Tensor | None
    k_step: int
    v_scale: torch.Tensor | None
    v_step: int
    scale: float
    window: int


def check_attention(
    query: torch.Tensor,
    rows: str,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float | None,
    k_scale: Scale,
    v_scale: Scale,
    sliding_window: int | None,
) -> Pages:
    """Arguments that paged_decode and paged_prefill share; ``rows`` names query's first dimension.

    Raises:
        ValueError: as the wrappers' docstrings say.
    """
    shapes = Shapes()
    shapes.check("query", query, f"{rows} num_heads head_size", FLOATS, dense_from=1)
    shapes.check("block_tables", block_tables, "num_seqs max_blocks", (torch.int32,), dense_from=1)
    shapes.check("seq_lens", seq_lens, "num_seqs", (torch.int32,))
    check_caches(shapes, key_cache, value_cache, query.dtype)
    if shapes["num_heads"] % shapes["num_kv_heads"]:
        raise ValueError(
            f"query has {shapes['num_heads']} heads; it must have a multiple of the cache's"
            f" {shapes['num_kv_heads']}"
        )
    if sliding_window is not None:
        at_least("sliding_window", sliding_window, 1)
    k_scale, k_step = head_scale("k_scale", k_scale, key_cache, shapes)
    v_scale, v_step = head_scale("v_scale", v_scale, value_cache, shapes)
    scale = shapes["head_size"] ** -0.5 if scale is None else float(scale)
    return Pages(shapes, k_scale, k_step, v_scale, v_step, scale, sliding_window or 0)


def check_caches(
    shapes: Shapes, key_cache: torch.Tensor, value_cache: torch.Tensor, dtype: torch.dtype
) -> None:
    """Both caches: [num_blocks, block_size, num_kv_heads, head_size], of ``dtype`` or FP8."""
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        dims = "num_blocks block_size num_kv_heads head_size"
        shapes.check(name, cache, dims, (dtype, *FP8), dense_from=1)
    if key_cache.dtype != value_cache.dtype or key_cache.stride() != value_cache.stride():
        raise ValueError(
            f"value_cache is {short(value_cache.dtype)} with strides {value_cache.stride()};"
            f" it must be {short(key_cache.dtype)} with key_cache's {key_cache.stride()}"
        )
    if shapes["head_size"] not in HEAD_SIZES:
        allowed = ", ".join(str(size) for size in HEAD_SIZES)
        raise ValueError(f"head_size is {shapes['head_size']}; it must be one of {allowed}")


def check_native_fp8(cache: torch.Tensor, backend: Backend, writes: bool = False) -> None:
    """A torch.float8_e4m3fn cache needs hardware conversions, and rounding needs a real GPU."""
    if cache.dtype != torch.float8_e4m3fn:
        return
    if backend.name == "triton" and (refusal := native_fp8_refusal(backend.capability)):
        raise ValueError(f"key_cache is float8_e4m3fn; {refusal}")
    if backend.name == "interpreter" and writes:
        raise ValueError(
            "key_cache is float8_e4m3fn, which Triton's interpreter rounds wrongly:"
            " pass cache.view(torch.uint8), the same bits, which the portable codec writes"
        )


def head_scale(
    name: str, scale: Scale, cache: torch.Tensor, shapes: Shapes
) -> tuple[torch.Tensor | None, int]:
    """A scale as (fp32 tensor, step from head to head); (None, 0) for 1. Only FP8 caches have any.

    Raises:
        ValueError: the cache is not FP8, or ``scale`` is neither one number nor one per KV head.
    """
    if scale is None:
        return None, 0
    if cache.dtype not in FP8:
        raise ValueError(f"{name} is given, but the cache is {short(cache.dtype)}; only FP8 is scaled")
    if not isinstance(scale, torch.Tensor):
        return torch.full((1,), float(scale), dtype=torch.float32, device=cache.device), 0
    heads = shapes["num_kv_heads"]
    flat = scale.reshape(1) if scale.dim() == 0 else scale
    if flat.dtype != torch.float32 or flat.dim() != 1 or flat.numel() not in (1, heads):
        raise ValueError(
            f"{name} is {short(scale.dtype)} of shape {tuple(scale.shape)};"
            f" it must be float32 of shape [1] or [num_kv_heads] = [{heads}]"
        )
    shapes.check(name, flat, str(flat.numel()), (torch.float32,))
    return flat, int(flat.numel() > 1)


def check_tables(
    block_tables: torch.Tensor, seq_lens: torch.Tensor, num_blocks: int, block_size: int
) -> None:
    """Every block that a sequence uses exists. Reads the values (waits for a GPU).

    Raises:
        ValueError: a length is negative or longer than its table; a block id is out of range.
    """
    width = block_tables.shape[1]
    if not seq_lens.numel():
        return
    low, high = int(seq_lens.min()), int(seq_lens.max())
    if low < 0 or high > width * block_size:
        raise ValueError(
            f"seq_lens goes from {low} to {high}; it must be within 0 and"
            f" {width} blocks of {block_size} tokens = {width * block_size}"
        )
    columns = torch.arange(width, device=block_tables.device)
    used = columns[None, :] * block_size < seq_lens[:, None]
    wrong = used & ((block_tables < 0) | (block_tables >= num_blocks))
    if wrong.any():
        row, column = (int(index) for index in wrong.nonzero()[0])
        raise ValueError(
            f"block_tables[{row}, {column}] is {int(block_tables[row, column])};"
            f" it must be within 0 and num_blocks - 1 = {num_blocks - 1}"
        )


def reads_values(tensor: torch.Tensor, debug: bool) -> bool:
    """Whether index values are checked in this call."""
    return debug or tensor.device.type == "cpu"


def output(
    out: torch.Tensor | None,
    shape: Sequence[int],
    dtype: torch.dtype,
    like: torch.Tensor,
    name: str = "out",
) -> torch.Tensor:
    """``out`` checked (contiguous, of ``shape`` and ``dtype``, where ``like`` is), or a new one."""
    if out is None:
        return torch.empty(tuple(shape), dtype=dtype, device=like.device)
    if out.dtype != dtype or tuple(out.shape) != tuple(shape) or out.device != like.device:
        raise ValueError(
            f"{name} is {short(out.dtype)} of shape {tuple(out.shape)} on {out.device};"
            f" it must be {short(dtype)} of shape {tuple(shape)} on {like.device}"
        )
    if not out.is_contiguous():
        raise ValueError(f"{name} has strides {out.stride()}; it must be contiguous")
    return out


def at_least(name: str, value: int, least: int) -> None:
    """Raises ValueError if ``value`` is below ``least``."""
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")


def short(dtype: torch.dtype) -> str:
    """"float16" for torch.float16."""
    return str(dtype).removeprefix("torch.")


def _dense(tensor: torch.Tensor, first: int) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape[first:]), reversed(tensor.stride()[first:])):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
