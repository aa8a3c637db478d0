"""shown: the arithmetic behind each number, written out for one setting."""

import math
from typing import Any

from minilab.judge.calculator.budget import weight_bytes

GIB = 2**30


def fixed(value: float, digits: int) -> str:
    """``value``, not negative, with so many digits. A half is rounded up: left to itself CPython
    rounds it to even and MicroPython does not."""
    scale = 10**digits
    whole = int(value * scale + 0.5)
    return f"{whole // scale}." + str(scale + whole % scale)[1:]


def gib(size: float) -> str:
    """Bytes in GiB."""
    return fixed(size / GIB, 2)


def kv_line(held: Any) -> str:
    """Bytes of KV per token, group by group."""
    parts = [_group(held, group) for group in held.groups]
    whole = " + ".join(parts)
    return f"{whole} = {held.per_token:,} B"


def _group(held: Any, group: list[int]) -> str:
    layers, heads, dim, latent, rope, window, stride = group
    if latent:
        text = f"{layers} layers x ({latent} + {rope}) x {held.size} B"
    else:
        here = held.heads(group)
        shown = f"{here} KV heads" if held.tp == 1 else f"{here} of {heads} KV heads"
        text = f"2 x {layers} layers x {shown} x {dim} x {held.size} B"
    if stride > 1:
        text += f" / {stride}"
    return f"{text} (only the last {window:,} tokens)" if window else text


def weight_line(model: dict[str, Any], dtype: str, sizes: dict[str, Any], tp: int) -> str:
    """Bytes of weights on one GPU."""
    dense = model["dtype"] if dtype == "native" else dtype
    expert = model["expert_dtype"] if dtype == "native" else dtype
    plain = max(2.0, sizes[dense])
    parts = [f"{fixed(model['tables'] / 1e9, 2)} G x {plain:g} B"]
    parts.append(f"{fixed(model['matrices'] / 1e9, 2)} G x {sizes[dense]:.6g} B")
    if model["routed"]:
        parts.append(f"{fixed(model['routed'] / 1e9, 2)} G x {sizes[expert]:.6g} B")
    whole = " + ".join(parts)
    total = weight_bytes(model, dtype, sizes) / tp
    shared = whole if tp == 1 else f"({whole}) / {tp} GPUs"
    return f"{shared} = {gib(total)} GiB"


def budget_line(terms: list[Any], left: float) -> str:
    """The budget as one sum in GiB."""
    text = gib(terms[0][1])
    for _, size, _ in terms[1:]:
        text += f" - {gib(-size)}"
    return f"{text} = {gib(left)} GiB"


def tokens_line(left: float, held: Any, tokens: int) -> str:
    """Bytes over bytes of a block, in whole blocks."""
    each = held.per_token + held.indexer
    return f"{gib(left)} GiB / ({each:,} B x {held.block}) = {tokens // held.block:,} blocks"


def batch_line(left: float, held: Any, tokens: int, length: int, most: int) -> str:
    """How many requests of a length, and what binds."""
    if held.uniform:
        blocks, many = tokens // held.block, math.ceil(length / held.block)
        text = f"{blocks:,} blocks / {many:,} a request = {fixed(blocks / many, 2)}"
    else:
        size = held.sequence(length)
        each = fixed(size / GIB, 4)
        text = f"{gib(left)} GiB / {each} GiB a request = {fixed(left / size, 2)}"
    return f"{text}; max_num_seqs is {most}"
