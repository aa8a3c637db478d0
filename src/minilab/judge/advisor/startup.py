"""What a vLLM start-up log says that bears on a diagnosis. The capacity calculator reads the rest.

Lines looked at: vLLM 0.8 to 0.32.
"""

from __future__ import annotations

import re

from minilab.judge.advisor.finding import FAULT, HINT, Finding
from minilab.judge.advisor.signals import Signals

MARKS = re.compile(
    r"GPU KV cache size|# GPU blocks|Available KV cache memory|Maximum concurrency for|"
    r"vLLM (API server|is) version|Initializing a V\d|EngineCore|gpu_memory_utilization"
)
TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
TOO_LONG = re.compile(r"KV cache is needed, which is larger than|larger than the maximum number of")
NO_ROOM = re.compile(r"No available memory for the cache blocks|Available KV cache memory: -")
FALLBACK = re.compile(
    r"[^\n]{0,80}(not support\w*|unsupported|fall\w* back|ignor\w+)[^\n]{0,60}", re.IGNORECASE
)
PARALLEL = re.compile(r"tensor_parallel_size['\"]?[=:] ?(\d+)")
LATENT = re.compile(r"deepseek|kimi|MLA", re.IGNORECASE)


def is_startup_log(text: str) -> bool:
    """Whether text looks like a server's start-up log."""
    return MARKS.search(text) is not None


def signals_of_startup(text: str, name: str) -> tuple[Signals, list[Finding]]:
    """Signals of the log, and what it says itself."""
    signals = Signals(name)
    found = []
    if match := TOKENS.search(text):
        signals.values["kv_tokens"] = float(match[1].replace(",", ""))
    if match := CONCURRENCY.search(text):
        times = float(match[2])
        signals.values["kv_seqs"] = times
        if times < 2:
            evidence = [f"room for {times:g} requests of {match[1]} tokens"]
            found.append(Finding("kv_capacity", 0.6, HINT, evidence))
    if TOO_LONG.search(text):
        evidence = ["max_model_len needs more KV than there is"]
        found.append(Finding("kv_capacity", 0.9, FAULT, evidence))
    if NO_ROOM.search(text):
        evidence = ["weights and activations leave no memory for KV"]
        found.append(Finding("kv_capacity", 0.95, FAULT, evidence))
    if re.search(r"fp8|kv.cache.dtype", text, re.IGNORECASE) and FALLBACK.search(text):
        evidence = ["the log speaks of FP8 and of something unsupported or ignored"]
        found.append(Finding("backend_unsupported", 0.6, FAULT, evidence))
    match = PARALLEL.search(text)
    if match and int(match[1]) > 1 and LATENT.search(text):
        evidence = [f"one latent KV head, tensor parallel over {match[1]} GPUs: each holds all"]
        found.append(Finding("mla_replicated", 0.55, HINT, evidence))
    signals.unknown["load"] = "a start-up log has no load in it; scrape /metrics while requests run"
    return signals, found
