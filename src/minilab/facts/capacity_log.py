"""Reads a vLLM start-up log into a ``StartupLog``: the patterns of its lines.

V0 and V1 wordings (0.5 to 0.32, seen in public threads); what a log does not say stays None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.startup_log import RankLog, StartupLog

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_GIB_PATTERNS = {
    "total": [rf"total_gpu_memory\s*[=(]\s*{_NUMBER}\s*GiB"],
    "weights": [
        rf"[Ll]oading (?:model )?weights took {_NUMBER} (?:GiB|GB)",
        rf"[Mm]odel loading took {_NUMBER} (?:GiB|GB)",
        rf"model weights take {_NUMBER}\s*GiB",
    ],
    "non_torch": [rf"non_torch_memory(?: takes)?\s*=?\s*{_NUMBER}\s*GiB"],
    "activation": [rf"(?:PyTorch )?activation peak memory takes {_NUMBER}\s*GiB"],
    "peak_torch": [rf"peak_torch_memory={_NUMBER}\s*GiB"],
    "available": [
        rf"Available KV cache memory: {_NUMBER}\s*GiB",
        rf"reserved for KV Cache is {_NUMBER}\s*GiB",
        rf"kv_cache_size={_NUMBER}\s*GiB",
        rf"available KV cache memory \({_NUMBER}\s*GiB\)",
    ],
    "cuda_graphs": [
        rf"[Gg]raph capturing finished in .*?took {_NUMBER}\s*GiB",
        rf"CUDA graph memory[^0-9]*{_NUMBER}\s*GiB",
    ],
    "needed": [rf"\({_NUMBER}\s*GiB KV cache is needed"],
}
_SHARE = re.compile(rf"gpu_memory_utilization\s*[=(]+\s*{_NUMBER}")
_TOKENS = re.compile(r"GPU KV cache size: ([0-9,]+) tokens")
_BLOCKS = re.compile(r"# GPU blocks: ([0-9,]+)")
_LENGTH = re.compile(r"Maximum concurrency for ([0-9,]+) tokens per request:\s*([0-9.]+)x")
_REFUSED = re.compile(r"max seq len \(([0-9,]+)\)")
_STORED = re.compile(r"maximum number of tokens that can be stored in KV cache \(([0-9,]+)\)")
_ESTIMATE = re.compile(r"estimated maximum model length is ([0-9,]+)")
_ATTENTION_BLOCK = re.compile(r"Setting attention block size to ([0-9,]+) tokens")
_RANK = re.compile(
    r"(?:Worker(?:Process)?_?(?:PP(?P<pp>\d+)_?)?(?:TP(?P<tp>\d+)|\s*rank=(?P<rank>\d+))|"
    r"pid=(?P<pid>\d+))"
)
_SETTINGS = {
    "model": r"\bmodel='([^']+)'",
    "max_len": r"\bmax_(?:seq|model)_len=([0-9]+)",
    "tp": r"\btensor_parallel_size=([0-9]+)",
    "pp": r"\bpipeline_parallel_size=([0-9]+)",
    "kv_dtype": r"\bkv_cache_dtype=(?:torch\.)?([a-z0-9_]+)",
    "dtype": r"\bdtype=torch\.([a-z0-9]+)",
    "version": r"engine \(v([0-9][^)]*)\)",
}


def read_startup_log(path: str | Path) -> StartupLog:
    """The start-up log in a file. Raises InputError where there is none of vLLM's memory lines."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{path}: cannot be read ({reason}); give a vLLM log") from None
    return parse_startup_log(text.splitlines(), str(path))


def parse_startup_log(lines: Iterable[str], where: str = "log") -> StartupLog:
    """The start-up log in ``lines`` (see ``read_startup_log``)."""
    ranks: dict[str, RankLog] = {}
    settings: dict[str, str] = {}
    found: dict[str, Any] = {}
    for line in lines:
        for name, pattern in _SETTINGS.items():
            match = re.search(pattern, line)
            if match and name not in settings:
                settings[name] = match.group(1)
        _read_rank_line(line, ranks)
        _read_totals(line, found)
    if not ranks and not found:
        raise InputError(
            f"{where}: no line about KV memory; give a vLLM start-up log (lines such as "
            "'Available KV cache memory: 11.47 GiB')"
        )
    return StartupLog(
        settings,
        tuple(ranks.values()),
        found.get("tokens"),
        found.get("max_len"),
        found.get("concurrency"),
        found.get("estimated_len"),
        found.get("attention_block"),
        bool(found.get("refused")),
    )


def _read_rank_line(line: str, ranks: dict[str, RankLog]) -> None:
    sizes = {}
    for name, patterns in _GIB_PATTERNS.items():
        for pattern in patterns:
            match = re.search(pattern, line)
            if match:
                sizes[name] = float(match.group(1))
                break
    if not sizes:
        return
    name = _rank_name(line)
    rank = ranks.setdefault(name, RankLog(name))
    for key, size in sizes.items():
        rank.gib.setdefault(key, size)
    share = _SHARE.search(line)
    if share:
        rank.utilization = float(share.group(1))


def _rank_name(line: str) -> str:
    match = _RANK.search(line)
    if not match:
        return "rank 0"
    if match.group("tp") is not None:
        stage = f"stage {match.group('pp')} " if match.group("pp") else ""
        return f"{stage}rank {match.group('tp')}"
    return f"rank {match.group('rank')}" if match.group("rank") else f"pid {match.group('pid')}"


def _read_totals(line: str, found: dict[str, Any]) -> None:
    for name, pattern in (
        ("tokens", _TOKENS),
        ("tokens", _STORED),
        ("estimated_len", _ESTIMATE),
        ("attention_block", _ATTENTION_BLOCK),
    ):
        match = pattern.search(line)
        if match and name not in found:
            found[name] = _whole(match.group(1))
    match = _BLOCKS.search(line)
    if match and "tokens" not in found:
        found["tokens"] = 16 * _whole(match.group(1))
    match = _LENGTH.search(line)
    if match:
        found["max_len"], found["concurrency"] = _whole(match.group(1)), float(match.group(2))
    match = _REFUSED.search(line)
    if match:
        found.setdefault("max_len", _whole(match.group(1)))
        found["refused"] = True


def _whole(text: str) -> int:
    return int(text.replace(",", ""))
