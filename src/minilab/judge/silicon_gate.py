"""The physics gate: a measurement that no machine could have made is refused before anyone fits.

A wrong row is worse than a missing one: it pulls constants towards hardware that does not exist.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.models import dtype_bytes
from minilab.judge.silicon_rows import Refused, SiliconRow, deduplicate, parse, read_table

MAX_MFU = 0.8
MAX_MBU = 1.0


class Silicon(NamedTuple):
    """Rows that may be used, and those that may not."""

    rows: list[SiliconRow]
    refused: list[Refused]


def read_silicon(path: str | Path, engine: str | None = "vllm") -> Silicon:
    """The aggregated rows of ``engine`` (None: of all), de-duplicated and through the gate.

    Raises InputError when the file cannot be read.
    """
    raw = [
        row for row in read_table(path) if row["mode"] == "agg" and engine in (None, row["backend"])
    ]
    kept, refused = deduplicate(raw)
    rows = []
    for item in kept:
        try:
            row = parse(item)
        except InputError as error:
            refused.append(Refused(item["id"], str(error).removeprefix(f"{item['id']}: ")))
            continue
        reason = why_impossible(row)
        if reason is None:
            rows.append(row)
        else:
            refused.append(Refused(row.id, reason))
    return Silicon(sorted(rows, key=lambda row: row.digest), refused)


def why_impossible(row: SiliconRow) -> str | None:
    """Why ``row`` can't have been measured, with the numbers; None if it can."""
    for name in ("isl", "osl", "concurrency", "tp"):
        if getattr(row, name) < 1:
            return f"{name} is {getattr(row, name)}; at least 1"
    for name in ("ttft", "tpot"):
        value = getattr(row, name)
        if not math.isfinite(value) or value <= 0:
            return f"{name} is {value} s; above 0"
    weights = row.spec.weight_bytes() / row.tp
    if weights > row.gpu.mem_bytes:
        return (
            f"weights of {weights / 2**30:.0f} GiB a GPU exceed its "
            f"{row.gpu.mem_bytes / 2**30:.0f} GiB"
        )
    bandwidth = mbu(row)
    if bandwidth > MAX_MBU:
        return f"reading the weights in {1e3 * row.tpot:.2f} ms takes {bandwidth:.0%} of peak"
    compute = mfu(row)
    if compute > MAX_MFU:
        return f"its tokens per second take {compute:.0%} of the tensor peak; at most {MAX_MFU:.0%}"
    prefill = _prompt(row) * _token_seconds(row) / row.ttft
    if prefill > MAX_MFU:
        return f"a prompt in {1e3 * row.ttft:.1f} ms takes {prefill:.0%} of the tensor peak"
    return None


def mbu(row: SiliconRow) -> float:
    """Share of memory bandwidth that one read of the weights a step touches would take."""
    spec = row.spec
    idle = (1 - spec.top_k / spec.experts) ** running(row) if spec.experts else 0.0
    experts = spec.routed_params * dtype_bytes(spec.expert_dtype)
    tables = 2 * spec.embedding_params
    read = spec.weight_bytes() - tables - experts * idle
    return read / (row.tp * row.gpu.mem_bw * row.tpot)


def running(row: SiliconRow) -> float:
    """Requests that decode at a time, by Little's law from the row's own TTFT and TPOT."""
    decode = row.osl * row.tpot
    return row.concurrency * decode / (row.ttft + decode)


def mfu(row: SiliconRow) -> float:
    """Share of the tensor peak that prompt and output tokens take together."""
    requests = row.concurrency / (row.ttft + row.osl * row.tpot)
    return requests * (_prompt(row) + row.osl) * _token_seconds(row)


def _prompt(row: SiliconRow) -> float:
    return row.isl if row.launch.exact else 0.9 * row.isl


def _token_seconds(row: SiliconRow) -> float:
    """Seconds that one token's matrix products take at peak on all GPUs of the row."""
    spec = row.spec
    experts = 2 * spec.moe_layers * spec.top_k * spec.expert_params
    dense = (spec.flops_per_token - experts) / row.gpu.flops_at(spec.dtype)
    return (dense + experts / row.gpu.flops_at(spec.expert_dtype)) / row.tp
