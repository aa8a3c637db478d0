"""What a simulated run is reported as: one JSON-able object, and a page of text made from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minilab.cli.error_lines import band_lines, band_of, overload_note
from minilab.cli.output import duration, facts, plain, quantile_rows, share, table
from minilab.cli.split_report import split_lines, split_part
from minilab.facts.capacity import NON_TORCH_BYTES, activation_bytes, kv_budget
from minilab.facts.cost import StepCost
from minilab.facts.expert_cost import ExpertCost
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.facts.runlog import RunLog
from minilab.facts.slo import METRICS, SLOSet, goodput, summary
from minilab.facts.workload import Workload
from minilab.sim.experiment import Experiment
from minilab.sim.moe_experiment import MoeExperiment

UTILIZATION = 0.9
HIT_RATE = "cached prompt tokens / prompt tokens, at first admission"


def report(
    experiment: Experiment, work: Workload, log: RunLog, slos: SLOSet | None
) -> dict[str, Any]:
    """The result of a run; times in seconds, rates per second, None where unavailable."""
    status = log.requests["status"]
    result: dict[str, Any] = {
        "requests": len(log),
        "completed": int(log.finished.sum()),
        **{name: int((status == name).sum()) for name in ("rejected", "failed", "aborted")},
        "simulated_seconds": log.duration if math.isfinite(log.duration) else None,
        "cpu_seconds": log.meta["cpu_seconds"],
        **summary(log),
        **_judged(log, slos),
        "gpus": log.meta["gpus"],
        "kv": _kv(experiment, log),
        "prefix": {"token_hit_rate": token_hit_rate(log), "definition": HIT_RATE},
        "split": split_part(experiment, log),
        "cost": _cost(experiment),
        "notes": [],
    }
    for key in ("data", "workload_hash", "seed", "versions", "config"):
        result[key] = log.meta[key]
    result["error_band"] = band_of(experiment, result)
    result["notes"] = _notes(experiment, log, result)
    if experiment.prefix_cache and all(request.prompt is None for request in work.requests):
        result["notes"].append("the requests tell lengths only: no two prompts can share a prefix")
    return result


def token_hit_rate(log: RunLog) -> float | None:
    """The share of prompt tokens that the prefix cache served when requests were first admitted."""
    admitted = ~np.isnan(log.requests["scheduled"])
    asked = int(log.requests["prompt_tokens"][admitted].sum())
    return int(log.requests["cached_tokens"][admitted].sum()) / asked if asked else None


def _judged(log: RunLog, slos: SLOSet | None) -> dict[str, Any]:
    if slos is None:
        return {"slo": None, "attainment": None, "goodput": None, "goodput_per_gpu": None}
    found = goodput(log, slos, log.meta["gpus"]).as_dict()
    names = ("attainment", "goodput", "goodput_per_gpu", "by_class", "unused_classes")
    return {"slo": str(slos), **{name: found[name] for name in names}}


def _kv(experiment: Experiment, log: RunLog) -> dict[str, Any]:
    blocks = log.meta["num_blocks"]
    return {
        "peak_usage": log.meta["kv_peak_usage"],
        "preemptions": log.meta["preemptions"],
        "blocks": blocks,
        "block_size": experiment.block_size,
        "tokens": blocks * experiment.block_size,
        "arithmetic": kv_arithmetic(experiment),
    }


def kv_arithmetic(experiment: Experiment) -> str:
    """Where the size of the pool comes from, with its numbers."""
    if experiment.kv_blocks is not None:
        return "blocks as given"
    e = experiment
    if isinstance(e, MoeExperiment):
        return e.kv_arithmetic()
    gpu, model = get_gpu(e.gpu, e.gpu_file), get_model(e.model)
    left = kv_budget(gpu, model, UTILIZATION, e.weight_dtype, e.tp)
    weights = model.weight_bytes(e.weight_dtype) / e.tp
    peak = activation_bytes(model, e.tp)
    per_token = model.kv_bytes_per_token(e.kv_dtype, e.tp)
    return (
        f"{UTILIZATION:g} x {_gib(gpu.mem_bytes)} - {_gib(weights)} weights "
        f"- {_gib(NON_TORCH_BYTES)} outside torch - {_gib(peak)} activations (both priors) "
        f"= {_gib(left)} GiB a GPU; / {per_token} B a token, in whole blocks"
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}"


def _cost(experiment: Experiment) -> dict[str, Any]:
    """What made the step cost, and how its constants came about."""
    model = experiment.cost_model()
    if isinstance(model, StepCost):
        return {"provenance": model.constants.provenance, **model.to_dict()}
    if isinstance(model, ExpertCost):
        whence = f"{model.dense.constants.provenance}; all-to-all fitted on DeepEP's table"
        return {"provenance": whence, **model.to_dict()}
    return {"provenance": "w, f, k, s as given in the cost file", **model.to_dict()}


def _notes(experiment: Experiment, log: RunLog, result: dict[str, Any]) -> list[str]:
    """What a reader must know to judge the numbers."""
    notes = []
    longest = log.requests["prompt_tokens"] + log.requests["output_tokens"]
    if result["rejected"]:
        notes.append(f"rejected, being larger than the KV pool: {result['rejected']}")
    if result["failed"]:
        notes.append(f"failed, having got stuck: {result['failed']}")
    limit = get_model(experiment.model).max_len
    over = int((longest > limit).sum()) if limit else 0
    if over:
        notes.append(f"longer than the {limit} tokens of {experiment.model}: {over} requests")
    for name in result.get("unused_classes", ()):
        notes.append(f"no request is of class {name!r}, which has an SLO")
    cost = result["cost"]
    for name in ("model", "gpu", "tp", "weight_dtype", "kv_dtype"):
        ours = getattr(experiment, name)
        if name in cost and cost[name] != ours:
            notes.append(f"the cost file is of {name} {cost[name]}, the KV pool of {ours}")
    overload = overload_note(result)
    if overload is not None:
        notes.append(overload)
    if result["split"] is not None:
        notes.append("the bands are of plain serving: they rest on runs without KV transfers")
    if experiment.num_speculative_tokens:
        notes.append("drafting itself costs nothing here, only verifying does")
    return notes


def as_text(experiment: Experiment, result: dict[str, Any]) -> str:
    """The report for people."""
    e, kv, data = experiment, result["kv"], result["data"]
    unserved = "".join(
        f", {result[name]} {name}" for name in ("rejected", "failed", "aborted") if result[name]
    )
    speed = result["requests"] / result["cpu_seconds"] if result["cpu_seconds"] else math.inf
    each = e.tp * (e.dp if isinstance(e, MoeExperiment) else 1)
    lines = [
        ("run", f"{data['name']} on {e.instances} x {e.model} ({each} x {e.gpu} each)"),
        ("requests", f"{result['requests']}: {result['completed']} completed{unserved}"),
        ("time", f"{duration(result['simulated_seconds'])} simulated"),
        ("", f"{result['cpu_seconds']:.3f} s of CPU ({speed:,.0f} requests per CPU second)"),
    ]
    end = [*_slo_lines(result), *split_lines(e, result), *_kv_lines(kv), *_prefix_lines(e, result)]
    end.append(("step cost", f"constants: {result['cost']['provenance']}"))
    end += band_lines(result)
    end.append(("data", f"{data['kind']}: {data['origin']}"))
    if data["sha256"]:
        end.append(("", f"sha256 {data['sha256']}"))
    end += [("note", note) for note in result["notes"]]
    quantiles = table(quantile_rows(result, [*METRICS, "gap"]))
    return f"{facts(lines)}\n\n{quantiles}\n\n{facts(end)}"


def _slo_lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    if result["slo"] is None:
        return [("SLO", "none given, so no goodput (--slo ttft=0.5,itl=50ms)")]
    rate, each = plain(result["goodput"]), plain(result["goodput_per_gpu"])
    lines = [
        ("SLO", f"{result['slo']} s: {share(result['attainment'])} of the requests are good"),
        ("goodput", f"{rate} good requests/s, {each} per GPU"),
    ]
    if len(result["by_class"]) > 1:
        for name, part in result["by_class"].items():
            good = f"{share(part['attainment'])} of {part['total']}"
            lines.append(("", f"{name or '(no class)'}: {good}, {plain(part['goodput'])}/s"))
    return lines


def _kv_lines(kv: dict[str, Any]) -> list[tuple[str, str]]:
    size = f"{kv['blocks']} blocks x {kv['block_size']} = {kv['tokens']} tokens an instance"
    used = f"peak use {share(kv['peak_usage'])}, {kv['preemptions']} preemptions"
    return [("KV pool", f"{size}; {used}"), ("", kv["arithmetic"])]


def _prefix_lines(e: Experiment, result: dict[str, Any]) -> list[tuple[str, str]]:
    if not e.prefix_cache:
        return [("prefix", "cache off")]
    rate = result["prefix"]["token_hit_rate"]
    return [("prefix", f"hit rate {plain(rate, 3)} = {HIT_RATE}")]
