"""KV tiers: fetching a prompt's KV from CPU memory or disk against computing it again (SmolLM2).

Beside each measured time stands what the two-line model of ``core.tiers`` says: latency + bytes /
bandwidth to fetch, tokens * seconds per token to compute. Its three numbers are measured on this
machine apart from what they predict: the bandwidth by one plain copy, the seconds per token at the
longest prompt, the latency at one block.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import host, write

from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiers import CpuTier, KVTiers, Tier
from minilab.engine.tiers_disk import DiskTier

LENGTHS = (32, 64, 128, 256, 512)
SIZE = 16
ONE = SamplingParams(max_tokens=1, temperature=0.0)


def fastest(run: Callable[[], float], times: int) -> float:
    """Median of ``times`` runs that each return their seconds."""
    return statistics.median(run() for _ in range(times))


def prompt(tokens: int, vocabulary: int, seed: int) -> list[int]:
    dice = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(0, vocabulary, (tokens,), generator=dice).tolist()
    return found


def compute_seconds(name: str, tokens: int, seed: int) -> float:
    """One prefill of ``tokens`` tokens, nothing cached."""
    llm = load(name)
    state = llm.add(prompt(tokens, llm.executor.model.config.vocab_size, seed), ONE)
    begin = time.perf_counter()
    llm.step()
    spent = time.perf_counter() - begin
    assert state.num_cached_tokens == 0 and not state.num_external_tokens
    return spent


_MODELS: dict[str, Any] = {}


def load(name: str) -> Any:
    """The engine, without anything cached."""
    limits = SchedulerConfig(
        160, SIZE, max_num_batched_tokens=2048, max_num_seqs=4, enable_prefix_caching=True
    )
    if name not in _MODELS:
        _MODELS[name] = load_llm(name, limits)
    llm = _MODELS[name]
    pool = llm.scheduler.pool
    taken = pool.take(pool.available)  # evicts all that is cached
    pool.blank += taken
    return llm


def fetch_seconds(name: str, tier: Tier, tokens: int, seed: int) -> float:
    """Bring ``tokens`` tokens of KV from a tier into the cache."""
    llm = load(name)
    tiers = KVTiers([tier], SIZE)
    llm.use_tiers(tiers)
    ids = prompt(tokens + 1, llm.executor.model.config.vocab_size, seed)
    llm.generate([ids], ONE)  # computed and saved
    load(name)
    state = llm.add(ids, ONE)
    plan = llm.scheduler.schedule()
    assert plan.loads == [state] and state.num_external_tokens == tokens
    begin = time.perf_counter()
    tiers.load(state)
    spent = time.perf_counter() - begin
    assert state.num_external_tokens == tokens
    llm.scheduler.remote.finish_loading(state.id)
    while llm.step():
        pass
    return spent


def copy_bandwidth(size: int) -> float:
    """Bytes per second of one plain copy of ``size`` bytes."""
    source = torch.empty(size // 4).normal_()
    target = torch.empty_like(source)

    def run() -> float:
        begin = time.perf_counter()
        target.copy_(source)
        return time.perf_counter() - begin

    run()
    return size / fastest(run, 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="smollm2 or tiny")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats at least 1")
    torch.set_num_threads(1)
    name, times = args.model, args.repeats
    cache = load(name).executor.model.kv_cache
    token_bytes = cache[:, :, :1].numel() * cache.element_size() // SIZE
    computed = {n: fastest(lambda n=n: compute_seconds(name, n, n), times) for n in LENGTHS}
    per_token = computed[LENGTHS[-1]] / LENGTHS[-1]
    bandwidth = copy_bandwidth(token_bytes * LENGTHS[-1])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tiers: dict[str, Tier] = {"cpu": CpuTier(4000), "disk": DiskTier(folder, "0" * 16)}
        latency = {
            kind: fastest(lambda t=tier: fetch_seconds(name, t, SIZE, 7), times)
            for kind, tier in tiers.items()
        }
        for n in LENGTHS:
            row: dict[str, Any] = {"tokens": n, "compute_seconds": computed[n]}
            row["compute_model_seconds"] = n * per_token
            for kind, tier in tiers.items():
                fetch = partial(fetch_seconds, name, tier, n, n)
                row[f"{kind}_seconds"] = fastest(fetch, times)
            row["cpu_model_seconds"] = latency["cpu"] + n * token_bytes / bandwidth
            rows.append(row)
            print(
                f"{n:>5} tokens: compute {1e3 * row['compute_seconds']:.1f} ms (model "
                f"{1e3 * row['compute_model_seconds']:.1f}), CPU tier "
                f"{1e3 * row['cpu_seconds']:.2f} ms (model {1e3 * row['cpu_model_seconds']:.2f}), "
                f"disk {1e3 * row['disk_seconds']:.2f} ms",
                flush=True,
            )
    result = {
        "host": host() | {"torch": torch.__version__, "threads": 1},
        "model": name,
        "dtype": str(cache.dtype),
        "kv_bytes_per_token": token_bytes,
        "block_size": SIZE,
        "copy_bytes_per_second": bandwidth,
        "one_block_seconds": latency,
        "seconds_per_token": per_token,
        "disk": "a temporary folder, read back from the page cache",
        "seed": "the prompt's length",
        "repeats": times,
        "rows": rows,
    }
    if not args.no_write:
        print(f"written to {write('kv_tiers', result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
