"""One stack on one workload in the simulator, kept in a file of lines, so that none runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from selector_workloads import count_of, requests_of

from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet, goodput
from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.server import Server
from minilab.judge.selector.tables import tables
from minilab.judge.selector.verdict import bottleneck
from minilab.judge.selector.workload import Settings
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

ROUTED, PLAIN = "bounded-prefix", "least-load"


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


class Runs:
    """Simulations that were made.

    Attributes:
        least: requests of a workload at least.
    """

    def __init__(self, keep: Path, least: int) -> None:
        self.keep = keep
        self.least = least
        self._made: dict[str, dict[str, Any]] = {}
        if keep.exists():
            for line in keep.read_text().splitlines():
                row = json.loads(line)
                self._made[_key(row["given"], row["stack"], row["layout"], "warm" in row)] = row

    def of(self, given: dict[str, Any], verdict: Any, seed: int) -> dict[str, Any]:
        """What came of a stack: attainment (share of all requests that met the limits), bars and
        bottleneck by the selector's rule."""
        return self._kept(
            given, verdict, False, lambda: self._run(settings_of(given), verdict, seed)
        )

    def warm(self, given: dict[str, Any], verdict: Any, seed: int) -> float:
        """The attainment of the second half of a run of twice the length: with the prefixes of the
        first half in the caches, and its queue."""
        row = self._kept(given, verdict, True, lambda: self._second_half(given, verdict, seed))
        return float(row["warm"])

    def _kept(
        self, given: dict[str, Any], verdict: Any, warm: bool, run: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        name, layout = verdict.stack.name(), verdict.layout
        key = _key(given, name, layout, warm)
        if key not in self._made:
            row = {"given": given, "stack": name, "layout": layout, **run()}
            with self.keep.open("a") as file:
                file.write(json.dumps(row) + "\n")
            self._made[key] = row
        return self._made[key]

    def _second_half(self, given: dict[str, Any], verdict: Any, seed: int) -> dict[str, Any]:
        settings = settings_of(given)
        limits = SLOSet.parse(f"ttft={settings.ttft}s,itl={settings.itl}s")
        log = experiment_of(settings, verdict).run(requests_of(settings, self.least, seed, 2))
        late = log.select(log.requests["id"] >= count_of(settings, self.least))
        return {"warm": goodput(late, limits, verdict.gpus).attainment or 0.0}

    def _run(self, settings: Settings, verdict: Any, seed: int) -> dict[str, Any]:
        limits = SLOSet.parse(f"ttft={settings.ttft}s,itl={settings.itl}s")
        log = experiment_of(settings, verdict).run(requests_of(settings, self.least, seed))
        bars = measured_bars(log, settings, verdict)
        attained = goodput(log, limits, verdict.gpus).attainment or 0.0
        return {"attainment": attained, "bars": bars, "label": bottleneck(bars)}


def _key(given: dict[str, Any], stack: str, layout: str, warm: bool) -> str:
    return json.dumps([given, stack, layout, warm], sort_keys=True)
