"""A vLLM start-up log -> where the memory went: per rank, in the engine's own words and numbers.

Reads V0 and V1 wordings (0.5 to 0.32, seen in public threads); what a log does not say stays None.
Nothing is guessed here: ``explain`` adds up what was found and says what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError

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


@dataclass
class RankLog:
    """What one worker logged, GiB; None: not in the log."""

    name: str
    gib: dict[str, float] = field(default_factory=dict)
    utilization: float | None = None

    @property
    def activation(self) -> float | None:
        """Activation peak: as logged, or the torch peak less the weights."""
        if "activation" in self.gib:
            return self.gib["activation"]
        if "peak_torch" in self.gib and "weights" in self.gib:
            return max(0.0, self.gib["peak_torch"] - self.gib["weights"])
        return None

    @property
    def computed(self) -> float | None:
        """The budget rule on the logged terms: utilization * total - the rest."""
        parts = [self.gib.get("total"), self.utilization, self.gib.get("weights"), self.activation]
        if any(part is None for part in parts):
            return None
        total, share, weights, active = (float(part) for part in parts if part is not None)
        return total * share - weights - active - self.gib.get("non_torch", 0.0)


@dataclass(frozen=True)
class StartupLog:
    """One engine start: settings, ranks, and the sizes it printed for all of them together."""

    settings: dict[str, str]
    ranks: tuple[RankLog, ...]
    tokens: int | None
    max_len: int | None
    concurrency: float | None
    estimated_len: int | None
    attention_block: int | None
    refused: bool

    @property
    def available(self) -> float | None:
        """GiB for KV on the worst-placed rank."""
        sizes = [rank.gib["available"] for rank in self.ranks if "available" in rank.gib]
        return min(sizes, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "settings": self.settings,
            "ranks": [
                {"name": r.name, "utilization": r.utilization, **r.gib, "activation": r.activation,
                 "computed_available": r.computed}
                for r in self.ranks
            ],
            "tokens": self.tokens,
            "max_len": self.max_len,
            "max_concurrency": self.concurrency,
            "estimated_max_len": self.estimated_len,
            "attention_block_size": self.attention_block,
            "refused": self.refused,
            "available_gib": self.available,
            "gib_per_1000_tokens": self._per_thousand(),
            "explanation": self.explain(),
        }  # fmt: skip

    def _per_thousand(self) -> float | None:
        if self.available is None or not self.tokens:
            return None
        return 1000 * self.available / self.tokens

    def explain(self) -> list[str]:
        """Sentences: where each GiB went, and what does not add up."""
        said = []
        for rank in self.ranks:
            said += _explain_rank(rank)
        sizes = sorted({rank.gib["available"] for rank in self.ranks if "available" in rank.gib})
        if len(sizes) > 1:
            said.append(
                f"The ranks have {sizes[0]:.2f} to {sizes[-1]:.2f} GiB for KV; all take the number "
                f"of blocks that the smallest can hold."
            )
        if self.tokens and self.available:
            per_token = self.available * 2**30 / self.tokens
            said.append(
                f"{self.available:.2f} GiB for {self.tokens:,} tokens: {per_token:,.0f} B a token; "
                "of a model with windows or states that is no cost per token (later versions print "
                "concurrency times max-len there)."
            )
        if self.refused:
            way = f" {self.estimated_len:,} tokens would fit." if self.estimated_len else ""
            said.append(f"The engine refused max-len {self.max_len or 0:,}.{way}")
        return said


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


def _explain_rank(rank: RankLog) -> list[str]:
    gib, parts = rank.gib, []
    if "total" in gib and rank.utilization is not None:
        parts.append(f"{gib['total']:.2f} GiB x {rank.utilization:g}")
    for label, size in (
        ("weights", gib.get("weights")),
        ("outside torch", gib.get("non_torch")),
        ("activation peak", rank.activation),
    ):
        if size is not None:
            parts.append(f"- {size:.2f} {label}")
    if not parts:
        return []
    text = f"{rank.name}: " + " ".join(parts)
    if "available" in gib:
        text += f" -> {gib['available']:.2f} GiB for KV"
        if rank.computed is not None and abs(rank.computed - gib["available"]) > 0.03:
            off = rank.computed - gib["available"]
            text += f"; {off:.2f} GiB more went elsewhere (CUDA graphs, or another process)"
    elif rank.computed is not None:
        text += f" = {rank.computed:.2f} GiB for KV"
    if "cuda_graphs" in gib:
        text += f"; CUDA graphs then took {gib['cuda_graphs']:.2f} GiB"
    return [text + "."]
