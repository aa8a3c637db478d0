"""How long the models of the page take under MicroPython, and that they answer as CPython does.

    python benchmarks/live_evaluation.py [--settings 200]

Node runs the very files and the runtime that the page ships. ``numbers`` is the answer to a slider
(bars, latency, goodput of the stack that is set), ``report`` the whole recommendation, ``flips``
the turning points that are looked for once a slider rests. CPU seconds stand beside those of the
clock, for a busy machine stretches the clock. Writes benchmarks/results/live_evaluation.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import RESULTS, host

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_ext"))

from live_model import files  # noqa: E402
from minilab.judge.selector.page import Page  # noqa: E402
from minilab.judge.selector.parameters import choices, parameters  # noqa: E402
from minilab.judge.selector.tables import as_json  # noqa: E402

KINDS = {
    "selector": ["selector.page", "tables.json", "parameters.json"],
    "capacity": ["calculator.page", "capacity_tables.json", "capacity_parameters.json"],
}
LIMITS = {"numbers": 0.005, "live": 1.0}
"""Seconds: what was asked for."""


def random_settings(count: int, seed: int) -> list[dict[str, Any]]:
    """Settings over the whole parameter space."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        values: dict[str, Any] = {}
        for row in parameters():
            words, low, high = choices(row), row.get("min", 0), row.get("max", 0)
            if words:
                values[row["name"]] = rng.choice(words)
            elif row["scale"] == "log":
                values[row["name"]] = round(low * (high / low) ** rng.random(), 3)
            else:
                values[row["name"]] = round(low + (min(high, 64) - low) * rng.random(), 3)
        found.append(values)
    return found


def in_node(asked: list[list[Any]]) -> dict[str, Any]:
    """What node says: seconds until alive, and each call's seconds and answer."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files().items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        script = Path(__file__).with_suffix(".mjs")
        told = subprocess.run(
            ["node", str(script), folder, str(ROOT / "book" / "assets" / "micropython")],
            input=json.dumps({"kinds": KINDS, "asked": asked}),
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Median, the slowest of twenty, and the slowest, in seconds."""
    order = sorted(seconds)
    return {
        "median": statistics.median(order),
        "p95": order[int(0.95 * (len(order) - 1))],
        "max": order[-1],
    }


def main() -> None:
    """Ask, time, compare, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    settings = random_settings(args.settings, args.seed)
    # What the page itself has asked before a reader can drag: the runtime compiles on the way.
    first: list[list[Any]] = [["selector", "report", {}], ["selector", "flips", {}]]
    asked: list[list[Any]] = [["selector", "batch", [one]] for one in settings]
    asked += [["selector", "report", one] for one in settings]
    asked += [["selector", "flips", one] for one in settings[:8]]
    asked += [["capacity", "report", {"length": 500 + at}] for at in range(50)]
    before = host()
    told = in_node(first + asked)
    shown, calls = told["calls"][0], told["calls"][len(first) :]
    ours = Page(as_json(), json.dumps(parameters()))
    same = all(
        json.loads(call["answer"]) == json.loads(ours.batch(json.dumps([given])))
        for given, call in zip(settings, calls, strict=False)
    )
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    names = {"batch": "numbers", "report": "report", "flips": "flips"}
    for call in calls:
        name = "capacity" if call["kind"] == "capacity" else names[call["method"]]
        wall.setdefault(name, []).append(call["seconds"])
        cpu.setdefault(name, []).append(call["cpu"])
    result = {
        "what": "MicroPython 1.27 WebAssembly in node: seconds of a call, JSON in and out",
        "host": before,
        "node": subprocess.run(
            ["node", "--version"], capture_output=True, text=True
        ).stdout.strip(),
        "settings": args.settings,
        "seed": args.seed,
        "limits": LIMITS,
        "live": told["live"],
        "first_report": shown["seconds"],
        "equal_to_cpython": same,
        "seconds": {name: quantiles(found) for name, found in wall.items()},
        "cpu_seconds": {name: quantiles(found) for name, found in cpu.items()},
    }
    (RESULTS / "live_evaluation.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
