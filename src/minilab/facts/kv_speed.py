"""When an FP8 KV cache is faster: slope and intercept, from bytes and from what was measured.

One decoding sequence: ITL(context) = base + slope * context. The slope is the KV bytes of a token
over the memory bandwidth; FP8 halves it. The base grows a little, for queries and new keys must be
quantised. So FP8 wins from the context at which the saved reading pays for that:

    break-even = (base_fp8 - base_bf16) / (slope_bf16 - slope_fp8)

Times are milliseconds here, as the published fits have them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, get_gpu
from minilab.facts.models import ModelSpec, get_model


class Line(NamedTuple):
    """ITL = base + slope * context, in ms and ms per token."""

    base: float
    slope: float

    def at(self, context: float) -> float:
        """Milliseconds between two tokens at this context."""
        return self.base + self.slope * context


class Published(NamedTuple):
    """One measured pair of lines, and the break-even its authors printed."""

    gpu: str
    model: str
    bf16: Line
    fp8: Line
    break_even: int


@cache
def kv_speed() -> dict[str, Any]:
    """Everything in kv_speed.json, its sources included."""
    text = resources.files("minilab.facts").joinpath("kv_speed.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def published() -> list[Published]:
    """The measured lines."""
    return [
        Published(
            row["gpu"],
            row["model"],
            Line(*row["bf16"]),
            Line(*row["fp8"]),
            row["published_break_even"],
        )
        for row in kv_speed()["lines"]
    ]


def break_even(plain: Line, quantised: Line) -> float:
    """Context from which ``quantised`` is faster; 0 if always, infinite if never."""
    saved, paid = plain.slope - quantised.slope, quantised.base - plain.base
    if paid <= 0 <= saved:
        return 0.0
    return paid / saved if saved > 0 else float("inf")


def roofline_slope(model: ModelSpec, gpu: GPU, kv_dtype: str = "bf16") -> float:
    """Least ms per token of context: the bytes that grow with it over the bandwidth."""
    return model.full_kv_bytes_per_token(kv_dtype) / gpu.mem_bw * 1e3


def gain(model: ModelSpec, context: int) -> float:
    """Share by which one sequence decodes faster with FP8 KV, memory traffic alone.

    (weights + context * B) / (weights + context * B / 2) - 1: the bandwidth cancels.
    Raises InputError for a context below 0.
    """
    if context < 0:
        raise InputError(f"context is {context}; give 0 or more tokens")
    weights = model.weight_bytes()
    plain, half = (weights + model.kv_bytes(context, dtype) for dtype in ("bf16", "fp8"))
    return plain / half - 1


def slope_table() -> list[dict[str, Any]]:
    """Each measured slope against its roofline: ratio above 1 is what the kernel leaves unused."""
    rows = []
    for one in published():
        model, gpu = get_model(one.model), get_gpu(one.gpu)
        for dtype, line in (("bf16", one.bf16), ("fp8", one.fp8)):
            floor = roofline_slope(model, gpu, dtype)
            rows.append(
                {
                    "gpu": one.gpu,
                    "model": one.model,
                    "kv_dtype": dtype,
                    "measured": line.slope,
                    "roofline": floor,
                    "ratio": line.slope / floor,
                }
            )
    return rows
