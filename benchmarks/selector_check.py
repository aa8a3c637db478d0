"""The selector against the simulator: does the stack that it recommends win there too?

    python benchmarks/selector_check.py [--workloads 200] [--keep FILE] [--list FILE --to FILE]

Each workload of benchmarks/selector_workloads.json is simulated with as many requests as arrive in
10 s (--requests at least, 800 at most). Goodput counts per second of arrivals, so a stack whose
every request is good cannot be beaten, and a recommended one of which a share of at least 0.9 is
good reaches at least 0.9 of the best, whatever the others do: they are then not simulated, and the
share is a lower bound. Otherwise every candidate stack runs until one is perfect. The name of the
bottleneck is compared with what the simulation's record gives by the same rule
(``selector_runs.measured_bars``). A run begins with empty caches and an empty queue, which the
closed form knows nothing of, so each miss is also judged by the second half of a run of twice the
length. Simulations are kept in a file of lines, so that a run can be
interrupted, and repeated after a change of the selector. Writes benchmarks/results/selector.json.
Draft tokens are free in the simulator, so ``draft_cost`` is 0 here.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import RESULTS, host
from selector_runs import Runs
from selector_workloads import LIST, listed
from tqdm import tqdm

from minilab.judge.selector.choose import choose
from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.tables import tables

ENOUGH = 0.9
SEED = 12


def check(given: dict[str, Any], runs: Runs, seed: int) -> dict[str, Any]:
    """One workload: the recommended stack, the plain one, and the others where they matter."""
    found = choose(tables(), settings_of(given))
    plain, mine = runs.of(given, found.plain, seed), runs.of(given, found.best, seed)
    reached = {found.plain.stack.name(): plain, found.best.stack.name(): mine}
    if mine["attainment"] < ENOUGH:
        for verdict in found.all:
            if max(run["attainment"] for run in reached.values()) >= 1.0:
                break
            reached[verdict.stack.name()] = runs.of(given, verdict, seed)
    best = max(reached, key=lambda name: reached[name]["attainment"])
    bounded = mine["attainment"] >= ENOUGH
    top = 1.0 if bounded else reached[best]["attainment"]
    reached_share = mine["attainment"] / top if top else 1.0
    return {
        "given": given,
        "chosen": mine["stack"],
        "attainment": mine["attainment"],
        "best": None if bounded else best,
        "best_attainment": None if bounded else reached[best]["attainment"],
        "share": reached_share,
        "warm": None if reached_share >= ENOUGH else _warm(given, found, best, runs, seed),
        "bounded": bounded,
        "simulated": len(reached),
        "label": found.plain.bottleneck,
        "simulated_label": plain["label"],
    }


def _warm(given: dict[str, Any], found: Any, best: str, runs: Runs, seed: int) -> list[float]:
    """Attainment of the recommended stack and of ``best``, once the caches are warm."""
    other = next(verdict for verdict in found.all if verdict.stack.name() == best)
    return [runs.warm(given, found.best, seed), runs.warm(given, other, seed)]


def kind_of_miss(row: dict[str, Any]) -> str:
    """What the best stack has that the chosen one lacks."""
    chosen, best = row["chosen"].split("/"), row["best"].split("/")
    parts = [f"{a} for {b}" for a, b in zip(chosen, best, strict=False) if a != b]
    return ", ".join(parts) or "routing"


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares and kinds of misses; also of the even and the odd places of the list, to show how much
    is chance."""
    won = [row["share"] >= ENOUGH for row in rows]
    same = [row["label"] == row["simulated_label"] for row in rows]
    lost = [row for row, good in zip(rows, won, strict=True) if not good]
    named = [row for row, good in zip(rows, same, strict=True) if not good]
    wrong = Counter(f"{row['label']} for {row['simulated_label']}" for row in named)
    return {
        "workloads": len(rows),
        "within_90_percent": share(won),
        "label_agrees": share(same),
        "by_half": {
            "even": [share(won[::2]), share(same[::2])],
            "odd": [share(won[1::2]), share(same[1::2])],
        },
        "decided_by_bound": sum(row["bounded"] for row in rows),
        "misses_that_warm_caches_end": sum(_ended(row) for row in lost),
        "misses_where_nothing_serves_a_tenth": sum(_hopeless(row) for row in lost),
        "misses": Counter(kind_of_miss(row) for row in lost).most_common(),
        "label_misses": wrong.most_common(),
    }


def _ended(row: dict[str, Any]) -> bool:
    mine, other = row["warm"]
    return bool(mine >= ENOUGH * other)


def _hopeless(row: dict[str, Any]) -> bool:
    return bool(max(*row["warm"], row["best_attainment"]) < 0.1)


def share(found: Sequence[bool]) -> float:
    """Share of true ones; 0 of none."""
    return sum(found) / len(found) if found else 0.0


def main() -> None:
    """Run, keep, summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--list", type=Path, default=LIST, help="other workloads, as the list is")
    parser.add_argument("--to", type=Path, default=RESULTS / "selector.json")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--keep", type=Path, default=Path("selector_check.jsonl"))
    args = parser.parse_args()
    runs, rows = Runs(args.keep, args.requests), []
    try:
        for at, given in enumerate(tqdm(listed(args.list)[: args.workloads], unit="workload")):
            rows.append(check(given, runs, SEED + at))
    except KeyboardInterrupt:
        print(f"interrupted: {len(rows)} workloads done; the same command goes on from there")
    told = summary(rows)
    result = {**told, "requests": args.requests, "host": host(), "rows": rows}
    args.to.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
