"""The workloads on which the selector is checked: random, not hopeless, the same for every version.

    python benchmarks/selector_workloads.py [--workloads 200] [--seed 12] [--to FILE]

writes benchmarks/selector_workloads.json. The rate of a workload is a share of what the selector
says the hardware could carry, so the list is kept as a file: a better selector is judged on the
workloads of the one before it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

from minilab.facts.workload import Workload, synthetic
from minilab.judge.selector.choose import choose
from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.tables import tables
from minilab.judge.selector.workload import Settings

LIST = Path(__file__).with_name("selector_workloads.json")
MODELS = ("llama-3.1-8b", "qwen3-8b", "qwen3-14b", "llama-3.1-70b", "qwen3-30b-a3b")
GPUS = ("h100", "h100", "a100-80g", "l40s", "h200")


def random_workload(rng: random.Random) -> dict[str, Any]:
    """One workload; the rate is a share of what it could carry."""

    def between(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    given: dict[str, Any] = {
        "model": rng.choice(MODELS),
        "gpu": rng.choice(GPUS),
        "gpus": rng.choice([1, 2, 4, 8]),
        "prompt": round(between(100, 16000)),
        "output": round(between(16, 1000)),
        "prefix_share": rng.choice([0, 0, 0.5, 0.9]),
        "groups": rng.choice([2, 20]),
        "acceptance": rng.choice([0, 0.4, 0.6, 0.8]),
        "draft_cost": 0,
        "ttft": round(between(0.3, 5), 3),
        "itl": round(between(0.015, 0.2), 4),
        "link": rng.choice(["infiniband-400", "ethernet-25", "nvlink-4"]),
    }
    found = choose(tables(), settings_of(given))
    if found is None:
        return random_workload(rng)
    top = max(verdict.capacity for verdict in found.all)
    given["rate"] = float(f"{min(200.0, max(0.1, top * between(0.1, 1.1))):.3g}")
    return given


def requests_of(settings: Settings, least: int, seed: int, times: int = 1) -> Workload:
    """The requests of these settings, ``times`` as many as one run has."""
    rate, output, shared = settings.rate, int(settings.output), int(settings.shared_tokens())
    count = times * count_of(settings, least)
    if not shared:
        return synthetic(rate, count, int(settings.prompt), output, seed=seed)
    own, groups = int(settings.prompt) - shared, int(settings.groups)
    return synthetic(rate, count, own, output, seed=seed, groups=groups, shared_tokens=shared)


def count_of(settings: Settings, least: int) -> int:
    """How many requests one run has: what arrives in 10 s, ``least`` to 800."""
    return max(least, min(800, int(10 * settings.rate)))


def listed(path: Path = LIST) -> list[dict[str, Any]]:
    """The workloads of a list."""
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["workloads"]
    return found


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--to", type=Path, default=LIST)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    found = [random_workload(rng) for _ in range(args.workloads)]
    lines = ",\n".join(json.dumps(given) for given in found)
    args.to.write_text(f'{{"seed": {args.seed}, "workloads": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
