"""How the tools disagree: the same run, judged by the definitions of each, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minilab.facts.readers import words
from minilab.facts.readers.detect import read
from minilab.facts.readers.judged import Limits, limits_of
from minilab.facts.runlog import RunLog
from minilab.facts.slo import goodput, summary

STATS = ("mean", "p50", "p99")


@dataclass(frozen=True)
class Tool:
    """One tool: the fields of ``call``'s result that stand for our words, and what they mean.

    ``fields``: for ttft, tpot and itl the keys of mean, p50 and p99, each a path into the result;
    ``factor``: to seconds; ``good`` and ``rate``: the keys of its goodput as a share (``percent``
    of 100) and per second, "" if it has none.
    """

    call: Callable[[RunLog, Limits], dict[str, Any]]
    fields: dict[str, tuple[tuple[str, ...], ...] | None]
    factor: float
    words: dict[str, str]
    good: str = ""
    rate: str = ""
    percent: float = 1.0


def _flat(name: str) -> tuple[tuple[str, ...], ...]:
    return tuple((f"{stat}_{name}_ms",) for stat in ("mean", "median", "p99"))


def _nested(name: str, mean: str = "mean", p50: str = "p50") -> tuple[tuple[str, ...], ...]:
    return tuple((name, stat) for stat in (mean, p50, "p99"))


TOOLS: dict[str, Tool] = {
    "vllm": Tool(
        words.as_vllm,
        {name: _flat(name) for name in ("ttft", "tpot", "itl")},
        1e-3,
        {
            "ttft": "until the first chunk",
            "tpot": "(latency - ttft) / (tokens - 1), per request",
            "itl": "all gaps between chunks, pooled",
            "goodput": "a rate of finished requests; one token passes tpot",
        },
        rate="request_goodput",
    ),
    "sglang": Tool(
        words.as_sglang,
        {name: _flat(name) for name in ("ttft", "tpot", "itl")},
        1e-3,
        {
            "ttft": "until the first chunk with text",
            "tpot": "(latency - ttft) / (tokens - 1), per request",
            "itl": "native backend: a chunk's gap / its tokens, once for each; else as vLLM",
            "goodput": "share of all requests sent",
        },
        good="goodput_share",
        rate="request_goodput",
    ),
    "aiperf": Tool(
        words.as_aiperf,
        {
            "ttft": _nested("time_to_first_token", "avg"),
            "tpot": _nested("inter_token_latency", "avg"),
            "itl": _nested("inter_chunk_latency", "avg"),
        },
        1e-3,
        {
            "ttft": "time_to_first_token, until the first chunk with content",
            "tpot": "called inter_token_latency: (latency - ttft) / (tokens - 1)",
            "itl": "called inter_chunk_latency: gaps between chunks, pooled",
            "goodput": "share of completed and failed; one token has no tpot and fails it",
        },
        good="good_request_fraction",
        rate="goodput",
    ),
    "guidellm": Tool(
        words.as_guidellm,
        {
            "ttft": _nested("time_to_first_token_ms", p50="median"),
            "tpot": _nested("time_per_output_token_ms", p50="median"),
            "itl": _nested("inter_token_latency_ms", p50="median"),
        },
        1e-3,
        {
            "ttft": "until the first token",
            "tpot": "(last token - start) / tokens: includes the first token, weighted by tokens",
            "itl": "(last - first) / (tokens - 1): one mean per request, weighted by tokens",
            "goodput": "its key tpot is held against its itl; one token is left out",
        },
        good="slo_attainment",
        rate="request_goodput",
    ),
    "inference-perf": Tool(
        words.as_inference_perf,
        {
            "ttft": _nested("time_to_first_token", p50="median"),
            "tpot": _nested("time_per_output_token", p50="median"),
            "itl": _nested("inter_token_latency", p50="median"),
        },
        1.0,
        {
            "ttft": "until the first token; none for answers of one token",
            "tpot": "(last token - first) / (tokens - 1)",
            "itl": "all gaps between tokens, 0 within a chunk, pooled",
            "goodput": "share of successes only",
        },
        good="goodput_percentage",
        rate="request_goodput",
        percent=100.0,
    ),
    "llmperf": Tool(
        words.as_llmperf,
        {"ttft": _nested("ttft_s"), "tpot": None, "itl": _nested("inter_token_latency_s")},
        1.0,
        {
            "ttft": "until the first token",
            "tpot": "not reported",
            "itl": "latency / tokens: includes the first token",
            "goodput": "not reported",
        },
    ),
}
OWN_WORDS = {
    "ttft": "first token - arrival",
    "tpot": "(last token - first) / (tokens - 1), per request",
    "itl": "each request's own 99th percentile of its gaps",
    "goodput": "share of all requests",
}


def compare(
    runs: Iterable[str | os.PathLike[str] | RunLog], slo: Limits = None
) -> list[dict[str, Any]]:
    """A row for each run and tool, ours ("minilab") first, for a table.

    ``runs``: files that ``read`` takes, or logs. A row: run, tool, sent, completed; ttft, tpot and
    itl as {"mean", "p50", "p99"} in seconds; good (share, by the tool's own denominator) and
    goodput (requests/s) under ``slo``, limits in seconds for all requests; words, what each means.
    None where the log cannot tell or the tool does not report it.

    Raises:
        InputError: a file cannot be read (see ``read``), or limits by class.
    """
    rows = []
    for i, run in enumerate(runs):
        log = run if isinstance(run, RunLog) else read(run)
        name = f"run {i + 1}" if isinstance(run, RunLog) else Path(run).name
        head = {"run": name, "sent": len(log), "completed": int(log.finished.sum())}
        rows.append({**head, **_ours(log, slo)})
        rows += [{**head, **_row(key, tool, log, slo)} for key, tool in TOOLS.items()]
    return rows


def _row(name: str, tool: Tool, log: RunLog, slo: Limits) -> dict[str, Any]:
    told = tool.call(log, slo)
    found: dict[str, Any] = {"tool": name}
    for word, paths in tool.fields.items():
        values = [_at(told, path) for path in paths or ()]
        known = values and values[0] is not None
        found[word] = dict(zip(STATS, [_times(v, tool.factor) for v in values], strict=True)) \
            if known else None  # fmt: skip
    good, rate = told.get(tool.good), told.get(tool.rate)
    return {
        **found,
        "good": None if good is None else good / tool.percent,
        "goodput": rate,
        "words": tool.words,
    }


def _ours(log: RunLog, slo: Limits) -> dict[str, Any]:
    told = summary(log)
    limits = limits_of(slo)
    judged = None if limits is None or slo is None else goodput(log, slo)
    return {
        "tool": "minilab",
        **{
            word: None if told[word] is None else {stat: told[word][stat] for stat in STATS}
            for word in ("ttft", "tpot", "itl")
        },
        "good": None if judged is None else judged.attainment,
        "goodput": None if judged is None else judged.goodput,
        "words": OWN_WORDS,
    }


def _at(told: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = told
    for key in path:
        value = None if value is None else value.get(key)
    return value


def _times(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor
