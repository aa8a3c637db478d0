"""How GPU time is taken, what the card reaches, and the case that a kernel is measured on.

A call is timed between two CUDA events. Before the first one the GPU is kept busy for a while, so
that the calls are queued before they begin: what is measured is the GPU, not Python's launches.
Calls take turns on several sets of inputs, more than the L2 cache holds.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from minilab.kernels import e4m3

Inputs = dict[str, Any]
SLEEP_CYCLES = 2e9  # a second or more, at the clocks GPUs have
FP8 = torch.float8_e4m3fn
TOLERANCE = {"fp32": 1e-5, "fp16": 1e-3, "bf16": 8e-3}


@dataclass(frozen=True)
class World:
    """Where cases run. ``tiny`` makes them small enough for a CPU."""

    device: torch.device
    capability: int
    tiny: bool = False

    @property
    def half(self) -> torch.dtype:
        """The 16-bit type of this card's tensor cores."""
        return torch.float16 if 0 < self.capability < 80 else torch.bfloat16

    @property
    def half_name(self) -> str:
        return "fp16" if self.half == torch.float16 else "bf16"

    @property
    def native_fp8(self) -> bool:
        return self.capability >= 89

    @property
    def storages(self) -> list[str]:
        """What a cache may hold here."""
        return ["16 bit", "fp8 portable", *(["fp8 native"] if self.native_fp8 else [])]

    def sizes(self, full: tuple[int, ...], tiny: tuple[int, ...]) -> tuple[int, ...]:
        return tiny if self.tiny else full

    def randn(self, *shape: int, seed: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        generator = torch.Generator(self.device).manual_seed(seed)
        numbers = torch.randn(shape, generator=generator, device=self.device)
        return numbers.to(dtype or self.half)


@dataclass(frozen=True)
class Case:
    """One kernel on one set of sizes.

    Attributes:
        kernel: the name under which it reports its backend.
        label: sizes and types, in words.
        rate: type whose matrix rate bounds it.
        cost: (bytes, FLOPs), from the kernel's own ``cost``.
        make: inputs from a seed.
        run: the kernel.
        error: relative error of a result against float64 (0 or 1 where bits must be equal).
        tolerance: the largest error that is right.
        reference: the kernel's plain-torch twin.
        torch: torch's own way, by its name; tried, and left out where it does not run.
        goal: share of the floor it should reach; with ``or_torch``, or beat torch's own.
    """

    kernel: str
    label: str
    rate: str
    cost: tuple[int, int]
    make: Callable[[int], Inputs]
    run: Callable[[Inputs], Any]
    error: Callable[[Inputs, Any], float]
    tolerance: float
    reference: Callable[[Inputs], Any]
    torch: tuple[str, Callable[[Inputs], Any]] | None = None
    goal: float | None = None
    or_torch: bool = False


class Timing(NamedTuple):
    """Microseconds; ``queued``: whether Python was ahead of the GPU, so that they are the GPU's."""

    median: float
    least: float
    queued: bool


def time_us(calls: Sequence[Callable[[], Any]], repeats: int = 30) -> Timing:
    """Time of one call, taken ``repeats`` times, the calls in turn, after each has run once."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    head_start, queued = 0.02, False
    while not queued and head_start < 1:
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
        torch.cuda._sleep(int(head_start * SLEEP_CYCLES))
        for at, (begin, end) in enumerate(marks):
            begin.record()
            calls[at % len(calls)]()
            end.record()
        queued = not marks[0][0].query()
        torch.cuda.synchronize()
        head_start *= 4
    times = [1e3 * begin.elapsed_time(end) for begin, end in marks]
    return Timing(statistics.median(times), min(times), queued)


def wall_us(call: Callable[[], Any], repeats: int = 3) -> float:
    """Median by the clock on the wall, for calls that wait for the GPU themselves."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times[1:])


@dataclass(frozen=True)
class Peaks:
    """What this card reaches in torch's own copy and matrix product, measured once each."""

    device: torch.device

    @cached_property
    def bandwidth(self) -> float:
        """Bytes per second of a copy, read and written ones counted."""
        free = torch.cuda.mem_get_info(self.device)[0]
        size = min(2**30, free // 8)
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * size / time_us([lambda: target.copy_(source)]).median * 1e6

    def rate(self, name: str) -> float:
        """FLOP/s of a product of matrices in "bf16", "fp16", "fp32" or "fp8"."""
        return self._rates[name]

    @cached_property
    def _rates(self) -> dict[str, float]:
        major, minor = torch.cuda.get_device_capability(self.device)
        rates = {"fp16": self._product(torch.float16), "fp32": self._product(torch.float32, 4096)}
        rates["bf16"] = self._product(torch.bfloat16) if major >= 8 else rates["fp16"]
        rates["fp8"] = self._fp8_product() if (major, minor) >= (8, 9) else rates["bf16"]
        return rates

    def _product(self, dtype: torch.dtype, size: int = 8192) -> float:
        a = torch.randn((size, size), device=self.device).to(dtype)
        return 2 * size**3 / time_us([lambda: a @ a.T], 10).median * 1e6

    def _fp8_product(self, size: int = 8192) -> float:
        a = torch.randn((size, size), device=self.device).to(FP8)
        one = torch.ones((), device=self.device)
        return 2 * size**3 / time_us([lambda: scaled(a, a.t(), one, one)], 10).median * 1e6

    def to_dict(self) -> dict[str, Any]:
        return {"copy_bytes_per_s": self.bandwidth, "flops_per_s": self._rates}


def scaled(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> Any:
    """torch's own FP8 product."""
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)


def floor_us(cost: tuple[int, int], bandwidth: float, rate: float) -> float:
    """Microseconds that moving the bytes takes, or the FLOPs, whichever is more."""
    return 1e6 * max(cost[0] / bandwidth, cost[1] / rate)


def input_sets(moved: int, cache: int) -> int:
    """Sets of inputs so that a call finds nothing of its own left in the cache."""
    return max(2, min(8, -(-4 * cache // max(moved, 1))))


def stored(x: torch.Tensor, storage: str) -> torch.Tensor:
    """A cache in 16 bits, or as FP8 codes."""
    if storage == "16 bit":
        return x
    codes = torch.cat([e4m3.encode(part) for part in x.split(1024)])  # in parts, for a small card
    return codes.view(FP8) if storage == "fp8 native" else codes


def width(storage: str) -> int:
    """Bytes of a number."""
    return 2 if storage == "16 bit" else 1


def bits(cache: torch.Tensor) -> torch.Tensor:
    """Native FP8 as the portable codes, which the references read."""
    return cache.view(torch.uint8) if cache.dtype == FP8 else cache


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative L2 error; NaN where anything is."""
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def slug(card: str) -> str:
    """ "h200" for "NVIDIA H200": part of a file's name."""
    words = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
    return re.sub(r"^(nvidia|tesla|nvidia-tesla)-", "", words)


def driver() -> str:
    """The driver's version as nvidia-smi tells it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.split("\n")[0].strip() or "unknown"
