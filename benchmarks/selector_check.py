"""The selector against the simulator: does the stack that it recommends win there too?

    python benchmarks/selector_check.py [--workloads 200] [--seed 12] [--requests 200] [--keep FILE]

Each random workload is simulated on every candidate stack, with as many requests as arrive in 10 s
(--requests at least, 800 at most), and the recommended stack is compared with the best. The name of
the bottleneck is compared with what the simulation's record gives by the same rule
(``measured_bars``). Finished workloads are kept in a file of lines, so that a run can be
interrupted. Writes benchmarks/results/selector.json. Draft tokens are free in the simulator, so
``draft_cost`` is 0 here.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS
from tqdm import tqdm

from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet, goodput
from minilab.facts.workload import Workload, synthetic
from minilab.judge.selector.choose import choose
from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.server import Server
from minilab.judge.selector.tables import tables
from minilab.judge.selector.verdict import bottleneck
from minilab.judge.selector.workload import Settings
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

MODELS = ("llama-3.1-8b", "qwen3-8b", "qwen3-14b", "llama-3.1-70b", "qwen3-30b-a3b")
GPUS = ("h100", "h100", "a100-80g", "l40s", "h200")
KEPT = ("given", "chosen", "best", "share", "label", "simulated_label")
ROUTED, PLAIN = "bounded-prefix", "least-load"


def random_workload(rng: random.Random) -> dict[str, Any]:
    """One workload, not hopeless for its hardware: the rate is a share of what it could carry."""

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


def requests_of(settings: Settings, count: int, seed: int) -> Workload:
    """The workload of these settings."""
    rate, output, shared = settings.rate, int(settings.output), int(settings.shared_tokens())
    if not shared:
        return synthetic(rate, count, int(settings.prompt), output, seed=seed)
    own, groups = int(settings.prompt) - shared, int(settings.groups)
    return synthetic(rate, count, own, output, seed=seed, groups=groups, shared_tokens=shared)


def experiment_of(settings: Settings, verdict: Any) -> Experiment:
    """The same stack in the simulator."""
    stack = verdict.stack
    whole = Experiment(
        model=settings.model,
        gpu=settings.gpu,
        tp=verdict.tp,
        instances=verdict.gpus // verdict.tp,
        weight_dtype=stack.weights,
        kv_dtype=stack.kv,
        max_num_batched_tokens=int(stack.budget),
        router=ROUTED if stack.routing else PLAIN,
        num_speculative_tokens=stack.drafts,
        acceptance_rate=settings.acceptance,
    )
    if stack.layout != "split":
        return whole
    prefills = int(verdict.layout.partition("P")[0])
    decodes = whole.instances - prefills
    return PdExperiment.split(whole, prefills, decodes, link=settings.link, prefill_router=PLAIN)


def measured_bars(log: RunLog, settings: Settings, verdict: Any) -> dict[str, float]:
    """The bars of ``judge.selector.verdict`` from what the simulation recorded.

    Shares of time are what the prompts and tokens that were really served cost, over the time that
    the run took; everything else is a recorded span. Nothing of the selector's own answer goes in.
    """
    columns = log.requests
    server = Server(tables(), settings, verdict.tp, verdict.stack.weights, verdict.stack.kv)
    step, done = server.step, log.finished
    prompt = columns["prompt_tokens"][done].astype(float)
    output = columns["output_tokens"][done].astype(float) - 1.0
    cached = np.maximum(columns["cached_tokens"][done], 0).astype(float)
    seconds = log.duration * (verdict.gpus // verdict.tp)
    batch = float(np.nansum(columns["decode"][done])) / seconds
    prompts = sum(
        step.prompt(new, old, batch) for new, old in zip(prompt - cached, cached, strict=True)
    )
    each = 0.0
    if batch > 0:
        each = (step.decode(batch, float((prompt + output / 2).mean())) - step.fixed) / batch
    gaps = log.gaps.to_lists().values if log.gaps is not None else np.zeros(1)
    own, queue = float(np.nanmean(columns["prefill"])), float(np.nanmean(columns["queue"]))
    return {
        "prefill_compute": max(prompts / seconds, own / settings.ttft),
        "decode_bandwidth": max(
            each * output.sum() / seconds, float(np.median(gaps)) / settings.itl
        ),
        "kv_capacity": mean_kv_usage(log),
        "kv_transfer": float(np.nan_to_num(columns["transfer"]).mean()) / settings.ttft,
        "queueing": queue / settings.ttft,
    }


def mean_kv_usage(log: RunLog) -> float:
    """Share of the KV pool in use, over the time between the samples of each instance."""
    assert log.series is not None
    held = span = 0.0
    for index in np.unique(log.series["instance"]):
        mine = log.series["instance"] == index
        wide = np.diff(log.series["t"][mine])
        held += float((wide * log.series["kv_usage"][mine][:-1]).sum())
        span += float(wide.sum())
    return held / span if span else 0.0


def check(given: dict[str, Any], count: int, seed: int) -> dict[str, Any]:
    """One workload on every stack."""
    settings = settings_of(given)
    found = choose(tables(), settings)
    limits = SLOSet.parse(f"ttft={settings.ttft}s,itl={settings.itl}s")
    work = requests_of(settings, max(count, min(800, int(10 * settings.rate))), seed)
    reached: dict[str, float] = {}
    label = ""
    for verdict in [*found.all, found.plain]:
        name = verdict.stack.name()
        if name in reached:
            continue
        log = experiment_of(settings, verdict).run(work)
        # Per second of arrivals: a run of some hundred requests ends in a tail without any.
        good = goodput(log, limits, verdict.gpus).attainment or 0.0
        reached[name] = good * settings.rate / verdict.gpus
        if name == found.plain.stack.name():
            label = bottleneck(measured_bars(log, settings, verdict))
    top = max(reached.values())
    chosen = reached[found.best.stack.name()]
    return {
        "given": given,
        "chosen": found.best.stack.name(),
        "best": max(reached, key=lambda name: reached[name]),
        "share": chosen / top if top else 1.0,
        "label": found.plain.bottleneck,
        "simulated_label": label,
        "reached": reached,
    }


def kind_of_miss(row: dict[str, Any]) -> str:
    """What the best stack has that the chosen one lacks."""
    chosen, best = row["chosen"].split("/"), row["best"].split("/")
    parts = [f"{a} for {b}" for a, b in zip(chosen, best, strict=False) if a != b]
    return ", ".join(parts) or "routing"


def main() -> None:
    """Run, keep, summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--keep", type=Path, default=Path("selector_check.jsonl"))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    asked = [random_workload(rng) for _ in range(args.workloads)]
    kept = {}
    if args.keep.exists():
        for line in args.keep.read_text().splitlines():
            row = json.loads(line)
            kept[json.dumps(row["given"], sort_keys=True)] = row
    rows = []
    for at, given in enumerate(tqdm(asked, unit="workload")):
        key = json.dumps(given, sort_keys=True)
        if key not in kept:
            kept[key] = check(given, args.requests, args.seed + at)
            with args.keep.open("a") as file:
                file.write(json.dumps(kept[key]) + "\n")
        rows.append(kept[key])
    won = [row["share"] >= 0.9 for row in rows]
    same = [row["label"] == row["simulated_label"] for row in rows]
    misses = Counter(kind_of_miss(row) for row, good in zip(rows, won, strict=True) if not good)
    labels = Counter(
        f"{row['label']} for {row['simulated_label']}"
        for row, good in zip(rows, same, strict=True)
        if not good
    )
    result = {
        "workloads": len(rows),
        "seed": args.seed,
        "requests": args.requests,
        "date": date.today().isoformat(),
        "within_90_percent": sum(won) / len(won),
        "label_agrees": sum(same) / len(same),
        "misses": misses.most_common(),
        "label_misses": labels.most_common(),
        "rows": [{name: row[name] for name in KEPT} for row in rows],
    }
    (RESULTS / "selector.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}, indent=1))


if __name__ == "__main__":
    main()
