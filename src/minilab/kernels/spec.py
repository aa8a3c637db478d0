"""What a launch needs beyond its data: an explicit table of tiles by architecture, no autotuner.

The same table serves the launch on a GPU and the ahead-of-time compilation without one (``aot``),
so what is checked is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ARCHS = (75, 80, 89, 90, 100, 120)


@dataclass(frozen=True)
class Config:
    """``tiles``: the kernel's upper-case tile arguments; ``warps`` of 32 threads per program;
    ``stages`` of the software pipeline (loads that are in flight ahead of their use)."""

    tiles: Mapping[str, Any]
    warps: int = 4
    stages: int = 1


def config_for(table: Mapping[int, Config], capability: int) -> Config:
    """The entry of the highest capability that is not above ``capability``.

    Raises:
        ValueError: ``capability`` is below all entries.
    """
    fitting = [known for known in table if known <= capability]
    if not fitting:
        raise ValueError(f"capability is {capability}; the table begins at {min(table)}")
    return table[max(fitting)]


@dataclass(frozen=True)
class Spec:
    """One kernel, one set of dtypes, to be compiled for each architecture in ``configs``.

    Attributes:
        name: shown in tables, e.g. "paged_decode fp16 D128".
        kernel: the ``@triton.jit`` function.
        types: Triton type of each run-time argument ("*fp16", "i32", "fp32").
        constexprs: values of the other arguments; the config's tiles are added to them.
        configs: Config by architecture; one that has none here is not compiled.
        expect: matrix instruction that must appear, by architecture (a prefix of the SASS name);
            where none is named, none may appear.
        any_value: integer arguments that are not multiples of 16 at run time. Others are said to
            be, as the launcher finds out by looking; loads vectorise only then.
        stack: bytes of stack (spilled registers) allowed by architecture, 0 where not named.
        why: reason for each exception in ``stack``.
        refused: architectures whose compiler must refuse this, as our own guard does.
        fast: part of the quick subset.
        case: the work that ``cost`` (bytes, FLOPs) is for, with matrices in ``dtype``.
    """

    name: str
    kernel: Any
    types: Mapping[str, str]
    constexprs: Mapping[str, Any]
    configs: Mapping[int, Config]
    expect: Mapping[int, str] = field(default_factory=dict)
    any_value: tuple[str, ...] = ()
    stack: Mapping[int, int] = field(default_factory=dict)
    why: str = ""
    refused: tuple[int, ...] = ()
    fast: bool = False
    case: str = ""
    dtype: str = ""
    cost: tuple[int, int] | None = None


# Tensor-core instruction that a dot of at least 64 rows becomes, and one of 16 rows.
WIDE_DOT = {80: "HMMA", 89: "HMMA", 90: "HGMMA", 100: "UTCHMMA", 120: "HMMA"}
NARROW_DOT = {80: "HMMA", 89: "HMMA", 90: "HMMA", 100: "HMMA", 120: "HMMA"}
