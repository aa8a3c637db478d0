"""RunLog as Parquet: requests as rows, so that pandas opens it; the rest in the file's metadata.

Gap lists are a column ``gaps``; runs, spans and the time series are Arrow tables, compressed, as
base64 text in the metadata. Use ``facts.runlog_io``; needs pyarrow (extra: data).
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minilab.facts.errors import InputError
from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.runlog import KINDS, Column, RunLog, as_column
from minilab.facts.runlog_jsonl import SERIES_KINDS, VERSION, check_version

_LIMIT = 1 << 30  # bytes of metadata: a log of ten million runs fits


def write(log: RunLog, file: BinaryIO) -> None:
    """Write the table; the log has been checked."""
    pa, pq = _arrow("writing")
    columns = {name: pa.array(log.requests[name], type=_type(pa, k)) for name, k in KINDS.items()}
    extra = {"minilab_runlog": str(VERSION), "meta": json.dumps(log.meta)}
    if isinstance(log.gaps, GapLists):
        ends = pa.array(log.gaps.offsets, type=pa.int32())
        columns["gaps"] = pa.ListArray.from_arrays(ends, pa.array(log.gaps.values))
    elif log.gaps is not None:
        extra["runs"], extra["spans"] = _packed(pa, log.gaps.runs), _packed(pa, log.gaps.spans)
    if log.series is not None:
        extra["series"] = _packed(pa, log.series)
    table = pa.table(columns).replace_schema_metadata(extra)
    pq.write_table(table, file, compression="zstd")


def read(path: Path) -> RunLog:
    """Read the table. Raises InputError naming the file; OSError as it comes."""
    pa, pq = _arrow("reading")
    with open(path, "rb") as file:
        try:
            table = pq.read_table(
                file, thrift_string_size_limit=_LIMIT, thrift_container_size_limit=_LIMIT
            )
            extra = {k.decode(): v for k, v in (table.schema.metadata or {}).items()}
            version = extra.get("minilab_runlog", b"")
            check_version(path, int(version) if version.isdigit() else None)
            return _log(pa, table, extra)
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            reason = str(error).splitlines()[0][:120]
            raise InputError(
                f"{path}: not a whole run log in Parquet ({reason}); make the log again"
            ) from error


def _log(pa: Any, table: Any, extra: dict[str, bytes]) -> RunLog:
    requests = {name: _column(pa, table, name, kind) for name, kind in KINDS.items()}
    gaps: GapLists | GapRuns | None = None
    if "gaps" in table.column_names:
        lists = table.column("gaps").combine_chunks()
        lengths = np.asarray(lists.value_lengths().fill_null(0), dtype=np.int64)
        values = np.asarray(lists.flatten(), dtype=np.float64)
        gaps = GapLists(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    elif "runs" in extra:
        runs = _unpacked(pa, extra["runs"], dict.fromkeys(RUN_COLUMNS, int))
        spans = _unpacked(pa, extra["spans"], dict.fromkeys(SPAN_COLUMNS, int))
        gaps = GapRuns(runs, spans, table.num_rows)
    series = _unpacked(pa, extra["series"], SERIES_KINDS) if "series" in extra else None
    return RunLog(requests, gaps, series, json.loads(extra["meta"]))


def _arrow(doing: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"{doing} Parquet needs pyarrow, which is not installed; "
            f"pip install 'minilab[data]', or use a name that ends in .jsonl"
        ) from error
    return pyarrow, pyarrow.parquet


def _type(pa: Any, kind: type) -> Any:
    return {int: pa.int64(), float: pa.float64(), str: pa.string()}[kind]


def _column(pa: Any, table: Any, name: str, kind: type) -> Column:
    values = table.column(name).cast(_type(pa, kind))
    if kind is not float and values.null_count:
        raise ValueError(f"column {name} has {values.null_count} nulls")
    return as_column(kind, values.to_numpy(zero_copy_only=False))


def _packed(pa: Any, table: dict[str, Column]) -> str:
    arrow = pa.table({name: pa.array(column) for name, column in table.items()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, arrow.schema, options=options) as writer:
        writer.write_table(arrow)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _unpacked(pa: Any, text: bytes, kinds: dict[str, type]) -> dict[str, Column]:
    buffer = pa.py_buffer(base64.b64decode(text, validate=True))
    table = pa.ipc.open_file(buffer).read_all()
    return {name: _column(pa, table, name, kind) for name, kind in kinds.items()}
