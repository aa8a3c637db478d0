"""Request traces: the readers of their files, and the way from a name to a Workload.

Two formats: the CSV of the Azure LLM inference traces (lengths only) and the JSON lines of the
Mooncake traces (with the ids of 512-token blocks). A reader takes whole columns at once; only when
that fails does it look for the row to blame.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minilab.facts import trace_fetch
from minilab.facts.arrivals import MAX_TOKENS, lognormal, whole
from minilab.facts.errors import InputError
from minilab.facts.prefix_stats import block_prompts, chained_block, lru_hits
from minilab.facts.request import Request
from minilab.facts.request_columns import from_columns
from minilab.facts.trace_fetch import SYNTHETIC, blame, decode, read_bytes
from minilab.facts.workload import Workload, synthetic

BLOCK = 512
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE = ("timestamp", "input_length", "output_length", "hash_ids")


class _Columns(NamedTuple):
    time: NDArray[np.float64]  # in the file's own unit
    prompt: Sequence[int]
    output: Sequence[int]
    ids: Sequence[list[int]] | None = None


def names() -> list[str]:
    """The names that ``load`` takes."""
    return [*trace_fetch.catalogue(), SYNTHETIC]


def load(name: str, limit: int | None = None, folder: Path | str | None = None) -> Workload:
    """The named trace (or file), its first ``limit`` requests, arrivals in seconds from the first.

    Looks in ``folder`` (default: $MINILAB_DATA), then in the cache of ``trace_fetch.fetch``. Where
    neither has the file, the stand-in answers and its ``source["kind"]`` says so (``notice``).
    """
    if name == SYNTHETIC:
        n = 1000 if limit is None else limit
        return synthetic(4.0, n, lognormal(1024, 8192), lognormal(200, 1000))
    if name not in names() and Path(name).is_file():
        return load_file(name, limit)
    trace = trace_fetch.entry(name)
    given = folder or os.environ.get("MINILAB_DATA")
    for base in (given, trace_fetch.cache_folder()):
        path = Path(base, trace["file"]) if base else None
        if path is None or not path.is_file():
            continue
        data, digest = read_bytes(path)
        if digest == trace["sha256"]:
            source = {"name": name, "kind": "real", "origin": trace["url"], "sha256": digest}
            return _workload(str(path), data, trace["format"], limit, source)
        if base == given:
            raise InputError(
                f"{path}: sha256 {digest[:16]}...; {name} has {trace['sha256'][:16]}...; restore "
                "the file, or give its path instead of the name"
            )
    from minilab.facts.stand_in import generate

    return generate(name).limit(limit)


def load_file(path: Path | str, limit: int | None = None, format: str | None = None) -> Workload:
    """The first ``limit`` requests of a trace file, plain or gzip.

    ``format`` is "azure-csv" or "mooncake-jsonl"; None tells by the content.
    """
    data, digest = read_bytes(Path(path))
    source = {"name": Path(path).name, "kind": "real", "origin": str(path), "sha256": digest}
    return _workload(str(path), data, format, limit, source)


def notice(workload: Workload) -> str | None:
    """One line for the reader when a stand-in was loaded instead of a real trace; else None."""
    if workload.source["kind"] != "stand-in":
        return None
    fetch = f"`minilab trace fetch {workload.name}` gets the trace"
    return f"{workload.name}: a stand-in, not the trace ({fetch})"


def info(name: str, folder: Path | str | None = None) -> dict[str, Any]:
    """What is known of a trace and what was loaded for it, JSON-able."""
    work = load(name, folder=folder)
    known = {} if name == SYNTHETIC else trace_fetch.entry(name)
    hits = lru_hits(work.requests)._asdict() if work.requests[0].prompt else None
    return {"name": name, **known, "source": work.source, "loaded": work.stats(), "reuse": hits}


def _workload(
    path: str, data: bytes, format: str | None, limit: int | None, source: dict[str, Any]
) -> Workload:
    text = decode(path, data)
    if format is None:
        format = "mooncake-jsonl" if text.lstrip()[:1] == "{" else "azure-csv"
    if format not in READERS:
        raise InputError(f"{path}: format {format!r}; unknown; use {' or '.join(READERS)}")
    with _gc_paused():
        requests = READERS[format](path, text, None if limit is None else whole("limit", limit))
    chained = chained_block(r.prompt for r in requests) if format == "mooncake-jsonl" else None
    return Workload(requests, source=source, chained=chained)


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """No cycle is made while rows become tuples; collecting would take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _azure(path: str, text: str, limit: int | None) -> list[Request]:
    header, *lines = _lines(text, None if limit is None else limit + 1)
    columns = [cell.strip().strip('"').lower() for cell in header.split(",")]
    try:
        pick = itemgetter(*(columns.index(name.lower()) for name in AZURE))
    except ValueError as error:
        what = "a header with TIMESTAMP, ContextTokens, GeneratedTokens (or Mooncake's JSON lines)"
        raise blame(path, 1, repr(header[:80]), what, "add the header") from error
    if not lines:
        raise blame(path, 2, "no rows", "at least 1 request", "get the file again")
    dated = ":" in lines[0]

    def parse(some: Sequence[str]) -> _Columns:
        rows = [line.split(",") for line in some]
        if set(map(len, rows)) != {len(columns)}:
            raise ValueError(f"{len(columns)} columns expected")
        stamp, prompt, output = pick(list(zip(*rows, strict=True)))
        return _Columns(_stamps(stamp, dated), list(map(int, prompt)), list(map(int, output)))

    read = _parsed(path, 2, lines, parse, "a time and two whole numbers")
    return _requests(path, 2, read, 1e9 if dated else 1.0, AZURE)


def _stamps(column: Sequence[str], dated: bool) -> NDArray[np.float64]:
    """Dates as nanoseconds since the first (all of them would not fit), numbers as they are."""
    if not dated:
        return np.array(column, np.float64)
    if column[0].endswith(("Z", "+00:00")):
        column = [cell.removesuffix("Z").removesuffix("+00:00") for cell in column]
    stamp = np.array(column, "datetime64[ns]")
    if np.isnat(stamp).any():
        raise ValueError("not a time")
    since: NDArray[np.float64] = (stamp - stamp[0]).astype(np.float64)
    return since


def _mooncake(path: str, text: str, limit: int | None) -> list[Request]:
    def parse(some: Sequence[str]) -> _Columns:
        rows = json.loads(f"[{','.join(some)}]")
        if len(rows) != len(some) or set(map(type, rows)) != {dict}:
            raise ValueError("one object a line expected")
        try:
            time, prompt, output, ids = zip(*map(itemgetter(*MOONCAKE), rows), strict=True)
        except KeyError as error:
            raise ValueError(f"no {error}") from error
        if not set(map(type, time)) <= {int, float} or set(map(type, ids)) != {list}:
            raise ValueError("timestamp is a number, hash_ids a list")
        if set(map(type, chain(prompt, output, chain.from_iterable(ids)))) != {int}:
            raise ValueError("lengths and ids are whole numbers")
        return _Columns(np.array(time, np.float64), prompt, output, ids)

    rule = f"one object with {', '.join(MOONCAKE)}"
    return _requests(path, 1, _parsed(path, 1, _lines(text, limit), parse, rule), 1e3, MOONCAKE)


READERS: dict[str, Callable[[str, str, int | None], list[Request]]] = {
    "azure-csv": _azure,
    "mooncake-jsonl": _mooncake,
}


def _lines(text: str, limit: int | None) -> list[str]:
    """The first ``limit`` lines, without the empty ones at the end."""
    lines = text.split("\n") if limit is None else text.split("\n", limit)[:limit]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _parsed(
    path: str,
    first: int,
    lines: Sequence[str],
    parse: Callable[[Sequence[str]], _Columns],
    rule: str,
) -> _Columns:
    """All lines parsed at once; when that fails, the first that fails on its own is blamed."""
    failures = (ValueError, OverflowError, RecursionError)
    try:
        return parse(lines)
    except failures as unlike:
        for row, line in enumerate(lines, first):
            try:
                parse([line])
            except failures as error:
                given = f"{line.strip()[:60]!r} ({error!s:.80})"
                raise blame(path, row, given, rule, "mend or remove the row") from error
        raise blame(path, first, str(unlike), rule, "write all rows alike") from unlike


def _requests(
    path: str, first: int, read: _Columns, per_second: float, columns: Sequence[str]
) -> list[Request]:
    """Requests from checked columns, arrivals in seconds from the first row."""
    when, size, answer = columns[:3]
    time = read.time
    for bad, rule in (
        (np.diff(time, prepend=time[0]) < 0, "not before the row above; sort the file by time"),
        (~(np.isfinite(time) & (time >= 0)), "a finite time of at least 0; mend the row"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(f"{path}:{first + row}: {when} {time[row] / per_second:g} s; {rule}")
    for name, column in ((size, read.prompt), (answer, read.output)):
        if min(column) < 1 or max(column) > MAX_TOKENS:
            row = next(k for k, v in enumerate(column) if not 1 <= v <= MAX_TOKENS)
            given = f"{name} {column[row]!r:.40}"
            raise blame(path, first + row, given, f"1 to {MAX_TOKENS} tokens")
    prompts = None
    if read.ids is not None:
        for row, (tokens, ids) in enumerate(zip(read.prompt, read.ids, strict=True)):
            if len(ids) != -(-tokens // BLOCK):
                given = f"{len(ids)} hash_ids for {tokens} tokens"
                raise blame(path, first + row, given, f"one id for each {BLOCK} tokens")
            if min(ids) < 0 or max(ids) >= 1 << 63:
                raise blame(path, first + row, "hash_ids", "from 0 to 2**63 - 1", "renumber them")
        prompts = block_prompts(read.prompt, read.ids, BLOCK)
    arrival = ((time - time[0]) / per_second).tolist()
    return from_columns(arrival, read.prompt, read.output, prompts)
