"""How many requests per CPU second a split cluster serves, and how long a large regime map takes.

The split run is a process of its own, cold, as in ``simulator_speed``. The map has 20 x 20 points
of 300 requests, both sides, one seed, on two processes; its wall time is what a reader waits.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import Any

from common import host, minilab, spread, verdict, write

from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.regime_map import RegimeMap, regime_map

W1_SPLIT = (
    *("--trace", "azure-conv-2023", "--limit", "2000", "--model", "llama-3.1-8b", "--gpu", "h100"),
    *("--prefill-instances", "1", "--no-prefix-cache", "--slo", "ttft=0.5,itl=0.05"),
)
TARGET, MAP_SECONDS, SIDE = 15_000, 60.0, 20
SEED = "0"


def measure(repeats: int) -> dict[str, Any]:
    """1P+1D on W1, each time in a fresh process."""
    command = ["sim", *W1_SPLIT, "--seed", SEED, "--json"]
    outcomes = [minilab(command) for _ in range(repeats)]
    first = outcomes[0].result
    speed = spread([o.result["requests"] / o.result["cpu_seconds"] for o in outcomes])
    return {
        "command": " ".join(["minilab", *command]),
        "requests": first["requests"],
        "requests_per_cpu_second": speed,
        "target": TARGET,
        "met": speed["median"] >= TARGET,
        "repeats": repeats,
        "input": {name: first["data"][name] for name in ("name", "kind", "sha256")},
    }


def side(base: Experiment, prompt: int, output: int) -> Experiment:
    """One point of the map: about 0.7 of a plain GPU's load, whatever the lengths."""
    seconds = prompt * 2.5e-5 + output * 4e-4
    return base.with_(prompt_tokens=prompt, output_tokens=output, rate=1.4 / seconds)


def large_map(jobs: int, progress: bool) -> tuple[RegimeMap, float]:
    """The map and the seconds it took."""
    whole = Experiment(instances=2, prefix_cache=False).with_(trace="synthetic", limit=300)
    split = PdExperiment.split(whole)
    prompts = [round(128 * 2 ** (k * 6 / (SIDE - 1))) for k in range(SIDE)]
    outputs = [round(8 * 2 ** (k * 6 / (SIDE - 1))) for k in range(SIDE)]
    begin = time.perf_counter()
    found = regime_map(
        ("prompt (tokens)", prompts),
        ("output (tokens)", outputs),
        partial(side, split),
        partial(side, whole),
        "ttft=1,itl=0.05",
        seeds=(0,),
        jobs=jobs,
        progress=progress,
        names=("split", "whole"),
    )
    return found, time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the map")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    row = measure(args.repeats)
    speed = row["requests_per_cpu_second"]
    print(
        f"1P+1D on W1 {speed['median']:,.0f} requests per CPU second ({speed['min']:,.0f} to "
        f"{speed['max']:,.0f}; target {TARGET:,}: {verdict(row['met'])})",
        flush=True,
    )
    found, seconds = large_map(args.jobs, sys.stderr.isatty())
    result: dict[str, Any] = {"host": host(), "seed": int(SEED), "split": row}
    result["map"] = {
        "points": SIDE * SIDE,
        "requests_per_run": 300,
        "runs": 2 * SIDE * SIDE,
        "jobs": args.jobs,
        "wall_seconds": seconds,
        "target_seconds": MAP_SECONDS,
        "met": seconds < MAP_SECONDS,
        "counts": found.counts(),
    }
    print(f"map {seconds:.1f} s (below {MAP_SECONDS:.0f}: {verdict(seconds < MAP_SECONDS)})")
    if not args.no_write:
        print(f"written to {write('pd_speed', result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
