"""How many requests per CPU second the simulator serves, and in how much memory.

Each run is a process of its own, cold, and runs once: what a reader who types the command gets. The
CPU seconds are those that the command reports (building the cluster and running it through);
imports, reading the trace and statistics are not in them, but are in ``process_cpu_seconds``.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

from common import MIB, host, minilab, spread, verdict, write

W1 = (
    *("--trace", "azure-conv-2023", "--limit", "2000", "--model", "llama-3.1-8b", "--gpu", "h100"),
    *("--instances", "2", "--no-prefix-cache", "--slo", "ttft=0.5,itl=0.05"),
)
W3 = (
    *("--trace", "mooncake-conversation", "--instances", "8", "--block-size", "512"),
    *("--kv-blocks", "16384", "--max-num-batched-tokens", "8192", "--max-num-seqs", "256"),
)
MAX_MIB = 300
SEED = "0"


class Workload(NamedTuple):
    """Options of ``minilab sim``, and the requests per CPU second that it should reach."""

    name: str
    options: tuple[str, ...]
    target: int


WORKLOADS = (
    Workload("W1", W1, 25_000),
    Workload("W1 at 10 times the speed", (*W1, "--speedup", "10"), 40_000),
    Workload("W3", W3, 20_000),
    Workload("W1 with 3 drafts a step", (*W1, "--num-speculative-tokens", "3"), 2_000),
)


def measure(work: Workload, repeats: int) -> dict[str, Any]:
    """Run one workload ``repeats`` times, each time in a fresh process."""
    command = ["sim", *work.options, "--seed", SEED, "--json"]
    outcomes = [minilab(command) for _ in range(repeats)]
    first = outcomes[0].result
    speed = spread([first["requests"] / o.result["cpu_seconds"] for o in outcomes])
    peak = max(outcome.peak_bytes for outcome in outcomes) / MIB
    return {
        "command": " ".join(["minilab", *command]),
        "requests": first["requests"],
        "completed": first["completed"],
        "requests_per_cpu_second": speed,
        "target": work.target,
        "met": speed["median"] >= work.target,
        "peak_mib": peak,
        "target_mib": MAX_MIB,
        "met_mib": peak < MAX_MIB,
        "process_cpu_seconds": spread([outcome.cpu_seconds for outcome in outcomes]),
        "repeats": repeats,
        "input": {name: first["data"][name] for name in ("name", "kind", "sha256")},
        "workload_hash": first["workload_hash"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes per workload")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"--repeats {args.repeats}; at least 1")
    result: dict[str, Any] = {"host": host(), "seed": int(SEED), "workloads": {}}
    for work in WORKLOADS:
        row = result["workloads"][work.name] = measure(work, args.repeats)
        speed = row["requests_per_cpu_second"]
        print(
            f"{work.name:<26}{speed['median']:>9,.0f} requests per CPU second "
            f"({speed['min']:,.0f} to {speed['max']:,.0f}; target {work.target:,}: "
            f"{verdict(row['met'])}), {row['peak_mib']:.0f} MiB (below {MAX_MIB}: "
            f"{verdict(row['met_mib'])}), {row['input']['kind']} data",
            flush=True,
        )
    if not args.no_write:
        print(f"written to {write('simulator_speed', result)}")
    met = all(row["met"] and row["met_mib"] for row in result["workloads"].values())
    return 1 if args.strict and not met else 0


if __name__ == "__main__":
    sys.exit(main())
