"""What ``minilab sim`` says of a prefill/decode split: the pools, the wire, and every stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minilab.cli.output import duration, share
from minilab.facts.runlog import STAGES, RunLog
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment


def split_part(experiment: Experiment, log: RunLog) -> dict[str, Any] | None:
    """The split as JSON, None where there is none; times in seconds.

    ``stages``: mean and p99 of each stage of the requests that went through both pools.
    """
    if not isinstance(experiment, PdExperiment):
        return None
    handed = ~np.isnan(log.requests["transfer"])
    stages = {}
    for name in STAGES:
        spans = log.requests[name][handed]
        spans = spans[~np.isnan(spans)]
        if spans.size:
            stages[name] = {"mean": float(spans.mean()), "p99": float(np.quantile(spans, 0.99))}
    seconds = log.duration
    return {
        "pools": {"prefill": experiment.prefill_instances, "decode": experiment.instances},
        "split_requests": int(handed.sum()),
        "transfers": log.meta["transfers"],
        "failed_transfers": log.meta["failed_transfers"],
        "wire_share": log.meta["wire_seconds"] / seconds if seconds > 0 else None,
        "prefill_kv_peak_usage": log.meta["prefill_kv_peak_usage"],
        "stages": stages,
    }


def split_lines(experiment: Experiment, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The split for people."""
    split = result["split"]
    if split is None or not isinstance(experiment, PdExperiment):
        return []
    prefill = experiment.prefill_side()
    pools = f"{prefill.instances} prefill ({prefill.tp} x {prefill.gpu} each)"
    pools += f", {experiment.instances} decode; mode {experiment.pd_mode}"
    sent = f"{split['split_requests']} of {result['requests']} requests split"
    if split["failed_transfers"]:
        sent += f", {split['failed_transfers']} transfers broke"
    busy = share(split["wire_share"])
    lines = [
        ("split", pools),
        ("", f"{sent}; the wires are busy {busy} of the time (one after the other)"),
    ]
    parts = split["stages"].items()
    if split["stages"]:
        text = ", ".join(f"{name} {duration(value['mean'])}" for name, value in parts)
        lines.append(("stages", f"mean of {text}"))
    return lines
