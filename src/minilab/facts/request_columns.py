"""Requests as columns: a trace is read as columns and hashed as columns, replayed as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import count, repeat
from typing import Any

import numpy as np

from minilab.facts.prefix_stats import Prompt, segments
from minilab.facts.request import Request


def from_columns(
    arrival: Iterable[float],
    prompt_tokens: Iterable[int],
    output_tokens: Iterable[int],
    prompt: Iterable[Prompt | None] | None = None,
) -> list[Request]:
    """Requests from equally long columns of plain Python numbers, in order of arrival."""
    texts = repeat(None) if prompt is None else prompt
    rest = [repeat(Request._field_defaults[name]) for name in Request._fields[5:]]
    columns = zip(count(), arrival, prompt_tokens, output_tokens, texts, *rest)
    return list(map(Request._make, columns))


def at_times(requests: list[Request], arrival: Iterable[float]) -> list[Request]:
    """The same requests at other arrival times (seconds), one for each."""
    return [Request(r.id, t, *r[2:]) for r, t in zip(requests, arrival, strict=True)]


def digest(requests: list[Request], title: str) -> str:
    """sha256 (hex) of ``title`` and of every column, each behind its name and size in bytes."""
    found = hashlib.sha256(title.encode())
    for name, column in zip(Request._fields, zip(*requests, strict=True), strict=False):
        data = _column_bytes(name, column)
        found.update(f"\n{name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def _column_bytes(name: str, column: tuple[Any, ...]) -> bytes:
    if name == "prompt":
        return b"".join(part.astype("<i8").tobytes() for part in segments(column))
    if name in ("id", "prompt_tokens", "output_tokens", "arrival", "think"):
        kind = "<f8" if name in ("arrival", "think") else "<i8"
        return np.array(column, kind).tobytes()
    plain = [v if v is None or isinstance(v, str) else int(v) for v in column]
    return repr(plain).encode()
