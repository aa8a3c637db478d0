"""Argument checks of the wrappers: each error names the argument, what it was, what it must be.

What can be seen without reading the data (dtype, shape, strides, device) is checked on every call.
Values in index tensors are read on the CPU always; on a GPU, where reading them waits for the
device, only with ``debug=True``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INTS = (torch.int32, torch.int64)
MAY_BE_EMPTY = ("num_seqs", "num_tokens", "num_reqs", "max_blocks", "n", "0")


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
            if size == 0 and dim not in MAY_BE_EMPTY:
                raise ValueError(f"{shown}; {dim} must be at least 1")
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
            raise ValueError(
                f"{name} is on {tensor.device}; {self._device[0]} is on {self._device[1]}"
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


def check_range(name: str, ids: torch.Tensor, low: int, high: int, limit: str) -> None:
    """Raises ValueError unless all ``ids`` are within ``low`` and ``high``, which is ``limit``."""
    if not ids.numel():
        return
    least, most = int(ids.min()), int(ids.max())
    if least < low or most > high:
        raise ValueError(
            f"{name} goes from {least} to {most}; it must be within {low} and {limit} = {high}"
        )


def check_drafts(
    ids: torch.Tensor, cu_drafts: torch.Tensor, max_spec_len: int, vocab_size: int
) -> None:
    """Each request has 0 to ``max_spec_len`` drafts, all of them tokens of the vocabulary.

    Raises:
        ValueError: it has not.
    """
    counts = cu_drafts.diff(prepend=cu_drafts.new_zeros(1)).tolist()
    if sum(counts) != ids.numel() or any(not 0 <= count <= max_spec_len for count in counts):
        raise ValueError(
            f"cu_num_draft_tokens gives the requests {counts} drafts; each must be within 0 and"
            f" max_spec_len = {max_spec_len}, and their sum draft_token_ids' {ids.numel()}"
        )
    check_range("draft_token_ids", ids, 0, vocab_size - 1, "vocab_size - 1")


def at_least(name: str, value: int, least: int) -> None:
    """Raises ValueError if ``value`` is below ``least``."""
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")


def short(dtype: torch.dtype) -> str:
    """ "float16" for torch.float16."""
    return str(dtype).removeprefix("torch.")


def _dense(tensor: torch.Tensor, first: int) -> bool:
    expected = 1
    inner = list(zip(tensor.shape, tensor.stride(), strict=True))[first:]
    for size, stride in reversed(inner):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
