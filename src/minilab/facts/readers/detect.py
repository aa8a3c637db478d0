"""Which tool wrote a file, told by its content and not by its name, and the way to its reader."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from minilab.facts import runlog_jsonl, runlog_parquet
from minilab.facts.errors import InputError
from minilab.facts.readers import aiperf, guidellm, inference_perf, sglang, vllm
from minilab.facts.readers.node import Node, shown
from minilab.facts.readers.source import PARQUET, Source
from minilab.facts.runlog import RunLog
from minilab.facts.user_input import unknown_name

OWN = "minilab"
FORMATS: dict[str, str] = {
    OWN: "a run log (.jsonl or .parquet)",
    vllm.FORMAT: "vllm bench serve --save-result --save-detailed",
    sglang.FORMAT: "sglang.bench_serving --output-details",
    aiperf.FORMAT: "aiperf's profile_export.jsonl",
    guidellm.FORMAT: "guidellm's JSON report",
    inference_perf.FORMAT: "inference-perf's per_request_lifecycle_metrics.json",
}
"""The formats that ``read`` takes, and what makes such a file."""

_MODULES: dict[str, ModuleType] = {
    m.FORMAT: m for m in (sglang, vllm, aiperf, guidellm, inference_perf)
}
_OWN_HEADER = re.compile(rb'\{\s*"minilab_runlog"\s*:')
_NO_ROWS = (
    ("input_config", "an aiperf summary", "give profile_export.jsonl, which has the requests"),
    ("num_requests_started", "a summary", "it has no requests; use another tool's file"),
    ("mean_ttft_ms", "a benchmark's summary", "run it again with --save-detailed (vLLM) or "
     "--output-details (SGLang)"),
)  # fmt: skip


def read(
    path: str | os.PathLike[str], format: str | None = None, part: int | None = None
) -> RunLog:
    """A benchmark's result file, or a run log, as a checked RunLog.

    ``format``: one of FORMATS, else told by the content; plain or gzip. ``part``: which run of a
    file that holds several (SGLang and vLLM append runs, guidellm has one for each load), from 1.
    Times are seconds from the first request; meta says what the tool's words mean
    (``definitions``), what the file does not hold (``missing``), and the arrivals asked for and
    achieved (``arrivals``). Missing times are NaN and missing gaps None, so that a limit on them is
    unavailable; missing counts are 0 and named in ``missing``. Without start times (SGLang) each
    request is on a clock of its own that starts at 0, which ``clock`` and ``missing`` say.

    Raises:
        InputError: the file cannot be read, is of no known format, is damaged, or holds several
            runs and ``part`` names none; in one line with file, place, value, limit, way out.
    """
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    source = Source.open(path)
    if source.data.startswith(PARQUET):
        return _own(source, path, format, part, runlog_parquet)
    if _OWN_HEADER.match(source.first_line):
        return _own(source, path, format, part, runlog_jsonl)
    documents = source.documents()
    first = documents[0]
    found = format or _format(first)
    if found == OWN:
        first.refuse("not a run log: no minilab_runlog at its start", "leave format out")
    if found == vllm.FORMAT:
        return vllm.read(source, _one(source, documents, part))
    if found == sglang.FORMAT:
        return sglang.read(source, _one(source, documents, part))
    if found == aiperf.FORMAT:
        return aiperf.read(source, _single(source, documents, part, whole=True))
    (report,) = _single(source, documents[:2], part if found != guidellm.FORMAT else None)
    if found == guidellm.FORMAT:
        return guidellm.read(source, report, _one(source, guidellm.runs(report), part))
    if inference_perf.is_summary(report.value):
        inference_perf.refuse_summary(report)
    return inference_perf.read(source, report)


def summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What an inference-perf summary says (``inference_perf.summary``): quantiles, no requests.

    Raises:
        InputError: the file cannot be read, or is none.
    """
    first, *_ = Source.open(path).documents()
    if not inference_perf.is_summary(first.value):
        first.refuse("must be an inference-perf summary", "readers.read takes files with requests")
    return inference_perf.summary(first)


def _format(first: Node) -> str:
    for name, module in _MODULES.items():
        if module.matches(first.value):
            return name
    if inference_perf.is_summary(first.value):
        inference_perf.refuse_summary(first)
    keys = first.value if isinstance(first.value, dict) else {}
    if {"ttfts", "itls"} <= set(keys):
        return vllm.FORMAT
    for key, what, way_out in _NO_ROWS:
        if key in keys:
            first.refuse("has no value per request", way_out, given=what)
    _unknown(first)


def _unknown(first: Node) -> NoReturn:
    keys = list(first.value)[:4] if isinstance(first.value, dict) else []
    given = f"an object with {', '.join(shown(key) for key in keys)}" if keys else None
    known = ", ".join(FORMATS.values())
    first.refuse("of no known tool", f"give a result of: {known}", given=given)


def _own(
    source: Source,
    path: str | os.PathLike[str],
    format: str | None,
    part: int | None,
    module: ModuleType,
) -> RunLog:
    if format not in (None, OWN):
        raise InputError(f"{source.path}: a run log; not of format {format!r}; leave format out")
    if part not in (None, 1):
        raise InputError(f"{source.path}: part {part}; a run log holds one run; leave part out")
    if source.packed:
        raise InputError(f"{source.path}: a run log in a gzip; must be plain; gunzip it first")
    try:
        log: RunLog = module.read(Path(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{source.path}: cannot be read ({reason}); give a run log") from error
    try:
        return log.check()
    except InputError as error:
        raise InputError(f"{source.path}: {error}") from error


def _one(source: Source, runs: list[Node], part: int | None) -> Node:
    """The run that ``part`` names (from 1); the only one if it names none."""
    if not runs:
        raise InputError(f"{source.path}: no run in it; must hold one; make the file again")
    if part is None and len(runs) > 1:
        raise InputError(
            f"{source.path}: {len(runs)} runs in one file; can judge one at a time; "
            f"say which with part, 1 to {len(runs)}"
        )
    if part is not None and not 1 <= part <= len(runs):
        raise InputError(
            f"{source.path}: part {part}; the file holds {len(runs)}; use 1 to {len(runs)}"
        )
    return runs[(part or 1) - 1]


def _single(
    source: Source, documents: list[Node], part: int | None, whole: bool = False
) -> list[Node]:
    """The JSON values of a file that is one run, refusing another ``part`` of it."""
    if part not in (None, 1):
        raise InputError(f"{source.path}: part {part}; the file holds one run; leave part out")
    if len(documents) > 1 and not whole:
        documents[1].refuse("must be one JSON value", "is this two files in one?")
    return documents
