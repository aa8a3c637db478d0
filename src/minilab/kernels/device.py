"""Which backend runs a kernel: decided by what the device can do, and always told.

Three backends: ``triton`` (a CUDA GPU), ``interpreter`` (Triton's own, in numpy, on the CPU) and
``reference`` (plain torch, anywhere). Triton decides on the interpreter once, when it is imported,
by the environment variable TRITON_INTERPRET, so a process has one mode. Kernel files take
``triton`` and ``tl`` from here, which is what lets them be imported where there is no triton.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

BACKENDS = ("auto", "triton", "interpreter", "reference")
NATIVE_FP8_CAPABILITY = 89
# The interpreter has no tensor cores to please; it is given the tiles of this capability.
INTERPRETER_CAPABILITY = 80


class _Absent:
    """Stands where triton would: decorators and types do nothing, and nothing may be launched."""

    def __getattr__(self, name: str) -> Any:
        return lambda value=None, *_, **__: value


triton: Any
tl: Any
try:
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
    HAS_TRITON = True
except ImportError:
    triton = tl = _Absent()
    HAS_TRITON = False


def _is_interpreted(function: Any) -> bool:
    return type(function).__name__ == "InterpretedFunction"


@triton.jit  # type: ignore[untyped-decorator]
def _probe() -> None:
    pass


INTERPRETED = HAS_TRITON and _is_interpreted(_probe)
# Set between `import triton` and here, the variable would mix two kinds of functions.
MIXED = HAS_TRITON and _is_interpreted(_probe) != _is_interpreted(tl.cdiv)


@dataclass(frozen=True)
class Backend:
    """What runs: ``name`` (one of BACKENDS but "auto"), the CUDA ``capability`` times ten whose
    tiles are used (0 for the reference), and in words ``why``."""

    name: str
    capability: int
    why: str


_used: ContextVar[dict[str, Backend] | None] = ContextVar("minilab_kernels_used", default=None)


@contextmanager
def backends_used() -> Iterator[dict[str, Backend]]:
    """Collect which backend each kernel called inside the block ran on, by kernel name.

    A page or a report prints this, so that a torch fallback is never shown as Triton.
    """
    used: dict[str, Backend] = {}
    token = _used.set(used)
    try:
        yield used
    finally:
        _used.reset(token)


def choose_backend(
    kernel: str, device: torch.device, backend: str = "auto", min_capability: int = 75
) -> Backend:
    """The backend for ``kernel`` on ``device``; ``min_capability`` is the least it compiles for.

    "auto" falls back to the reference and warns once for each reason; any other never falls back.

    Raises:
        ValueError: ``backend`` is unknown, or cannot run here.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; it must be one of {', '.join(BACKENDS)}")
    lacks = _what_lacks(kernel, device, min_capability)
    possible = _possible(device)
    if backend == "auto":
        if lacks and (device.type == "cuda" or not HAS_TRITON or MIXED):
            _warn_once(f"{lacks}; {kernel} runs the plain-torch reference")
        chosen = possible if not lacks else Backend("reference", 0, lacks)
    elif backend == "reference":
        chosen = Backend("reference", 0, "asked for")
    elif lacks:
        raise ValueError(f"backend is {backend!r}, but {lacks}; backend='auto' runs the reference")
    elif backend != possible.name:
        raise ValueError(
            f"backend is {backend!r}, but kernels run as {possible.name!r} here: {possible.why}"
        )
    else:
        chosen = possible
    used = _used.get()
    if used is not None:
        used[kernel] = chosen
    return chosen


def capability_of(device: torch.device) -> int:
    """CUDA compute capability times ten (8.9 is 89); 0 for a CPU."""
    if device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def sm_count(device: torch.device) -> int:
    """Streaming multiprocessors of a CUDA device; a small stand-in for the interpreter."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def native_fp8_refusal(capability: int, name: str = "cache") -> str:
    """Why hardware FP8 cannot be used at ``capability``, and the way out for the argument ``name``;
    "" where it can."""
    if capability >= NATIVE_FP8_CAPABILITY:
        return ""
    return (
        f"compute capability {capability / 10:.1f} has no FP8 conversion (8.9 is the first): "
        f"pass {name}.view(torch.uint8), the same bits, which the portable codec reads"
    )


def check_native_fp8(name: str, tensor: torch.Tensor, backend: str) -> None:
    """A float8_e4m3fn ``tensor`` asks for hardware FP8. A GPU without it refuses, with "auto" too:
    a fallback would run something else than what was asked for. The reference reads bits, so
    backend="reference" takes it anywhere. Call it before ``choose_backend``, whose way out is
    another one.

    Raises:
        ValueError: ``tensor``, the argument ``name``, is on a GPU below capability 8.9.
    """
    hardware = tensor.device.type == "cuda" and not INTERPRETED and backend != "reference"
    if tensor.dtype == torch.float8_e4m3fn and hardware:
        refusal = native_fp8_refusal(capability_of(tensor.device), name)
        if refusal:
            raise ValueError(f"{name} is float8_e4m3fn; {refusal}")


def _possible(device: torch.device) -> Backend:
    if INTERPRETED:
        return Backend("interpreter", INTERPRETER_CAPABILITY, "TRITON_INTERPRET was set at import")
    capability = capability_of(device)
    return Backend("triton", capability, f"a GPU of compute capability {capability / 10:.1f}")


def _what_lacks(kernel: str, device: torch.device, min_capability: int) -> str:
    """Why no Triton kernel can run, or ""."""
    if not HAS_TRITON:
        return "triton is not installed"
    if MIXED:
        return "TRITON_INTERPRET changed after triton was imported (restart, and set it first)"
    if INTERPRETED:
        return ""
    if device.type != "cuda":
        return f"the tensors are on the {device.type} and TRITON_INTERPRET was not set at import"
    capability = capability_of(device)
    if capability < min_capability:
        return (
            f"{kernel} has no variant for compute capability {capability / 10:.1f}"
            f" (the first is {min_capability / 10:.1f})"
        )
    return ""


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
