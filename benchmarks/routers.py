"""Routers: simulated requests per CPU second with each policy, and its worth in goodput.

Speed: the Mooncake conversation trace on eight instances (W3), a cold process per run. Goodput:
both traces at the load at which round robin attains 90 %, repeated over windows of the trace
(``sim.repeats``); differences are paired by window. Window 0 is where the constants of
``prefix-load`` were chosen, so the intervals leave it out.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from common import host, minilab, spread, verdict, write

from minilab.core.routers import ROUTERS
from minilab.facts.confidence import mean_ci
from minilab.facts.slo import goodput
from minilab.sim.experiment import Experiment
from minilab.sim.knee import find_knee
from minilab.sim.repeats import repeats

SLO = "ttft=5,itl=0.1"
TARGET = 15_000
RIVALS = ("round-robin", "least-load", "longest-prefix")
OURS = "prefix-load"
ALSO = ("cache-aware", "load-aware-score", "overlap-cost")
BASE = Experiment(instances=8, block_size=512, kv_blocks=16384)
W3 = (
    *("--trace", "mooncake-conversation", "--instances", "8", "--block-size", "512"),
    *("--kv-blocks", "16384", "--json", "--router"),
)


def speed(name: str, times: int) -> dict[str, Any]:
    """Requests per CPU second of one policy, over ``times`` processes."""
    found = [minilab(["sim", *W3, name]).result for _ in range(times)]
    rates = spread([one["requests"] / one["cpu_seconds"] for one in found])
    return {"requests_per_cpu_second": rates, "target": TARGET, "met": rates["median"] >= TARGET}


def worth(trace: str, windows: list[int]) -> dict[str, Any]:
    """Goodput per GPU of each policy on a trace, and ours against each rival, paired by window."""
    base = BASE.with_(trace=f"mooncake-{trace}")
    knee = find_knee(base, SLO, 0.9, lo=1.0, hi=20.0, seeds=(0,), rel_tol=0.01)
    rate = knee.rate_per_gpu * base.gpus
    rows: dict[str, list[float]] = {}
    for name in (*RIVALS, OURS, *ALSO):
        runs = repeats(base.with_(rate=rate, router=name), windows)
        rows[name] = [goodput(run.run(), SLO, base.gpus).goodput_per_gpu or 0.0 for run in runs]
        print(f"  {trace}: {name} {mean_ci(rows[name]).value:.4f}", flush=True)
    ours = rows[OURS]
    return {
        "rate": rate,
        "windows": windows,
        "goodput_per_gpu": rows,
        "gain_of_prefix_load": {n: gain(ours, r) for n, r in rows.items() if n != OURS},
        "data": base.workload.load().source["kind"],
    }


def gain(ours: list[float], other: list[float]) -> dict[str, Any]:
    """Our advantage in each window, as a share of our goodput: mean, interval, least, won."""
    shares = [1 - theirs / mine for mine, theirs in zip(ours, other, strict=True)]
    won = sum(share > 0 for share in shares)
    return {**mean_ci(shares)._asdict(), "least": min(shares), "won": won, "of": len(shares)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes per policy")
    parser.add_argument("--windows", type=int, default=6, help="windows of each trace")
    parser.add_argument("--only", choices=("speed", "goodput"), help="one of the two parts")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    if args.repeats < 1 or args.windows < 2:
        parser.error("--repeats at least 1, --windows at least 2")
    met = True
    if args.only != "goodput":
        result: dict[str, Any] = {"host": host(), "slowest": None, "policies": {}}
        for name in ROUTERS:
            row = result["policies"][name] = speed(name, args.repeats)
            median = row["requests_per_cpu_second"]["median"]
            print(f"{name:<24}{median:>8,.0f} requests per CPU second: {verdict(row['met'])}")
            met &= row["met"]
        medians = {n: r["requests_per_cpu_second"]["median"] for n, r in result["policies"].items()}
        result["slowest"] = min(medians, key=lambda name: medians[name])
        if not args.no_write:
            print(f"written to {write('router_speed', result)}")
    if args.only != "speed":
        windows = list(range(1, args.windows + 1))
        traces = {name: worth(name, windows) for name in ("conversation", "synthetic")}
        result = {"host": host(), "slo": SLO, "gpus": BASE.gpus, "traces": traces}
        least = [t["gain_of_prefix_load"][r]["least"] for t in traces.values() for r in RIVALS]
        print(f"least advantage over a rival in any window: {min(least):+.2%}")
        if not args.no_write:
            print(f"written to {write('router_goodput', result)}")
    return 1 if args.strict and not met else 0


if __name__ == "__main__":
    sys.exit(main())
