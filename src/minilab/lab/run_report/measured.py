"""What was served, by what, and how it was measured: the parts that need no comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from minilab.facts.cost import StepCost
from minilab.facts.error_band import error_band, why_none
from minilab.facts.errors import InputError
from minilab.lab.plots_base import listed, number, percent, plural
from minilab.lab.run_report.runs import NO_AXIS, Run
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

NONE = "–"
WORKLOAD_HEAD = ("workload", "requests", "rate (1/s)", "prompt tokens", "output tokens", "sha256")


def workloads(runs: Sequence[Run]) -> list[list[str]]:
    """A line per different set of requests."""
    seen: dict[Any, Run] = {}
    for run in runs:
        seen.setdefault(run.workload_hash or run.path, run)
    return [_workload(run) for run in sorted(seen.values(), key=_size)]


def _size(run: Run) -> tuple[str, float, float, float]:
    """Workloads of one name by rate, then by length: file names sort 12 before 4."""
    columns = run.log.requests
    arrival = columns["arrival"][~np.isnan(columns["arrival"])]
    span = float(np.ptp(arrival)) if arrival.size else 0.0
    rate = round((arrival.size - 1) / span, 3) if span > 0 else 0.0
    prompt, output = (float(columns[name].mean()) for name in ("prompt_tokens", "output_tokens"))
    return str(_data(run).get("name", "")), rate, prompt, output


def _workload(run: Run) -> list[str]:
    columns = run.log.requests
    arrival = columns["arrival"][~np.isnan(columns["arrival"])]
    span = float(np.ptp(arrival)) if arrival.size else 0.0
    rate = number((arrival.size - 1) / span) if span > 0 else "all at once"
    lengths = []
    for name in ("prompt_tokens", "output_tokens"):
        p50, p99 = np.quantile(columns[name], [0.5, 0.99])
        lengths.append(f"p50 {p50:,.0f}, p99 {p99:,.0f}")
    data = _data(run)
    title = f"{data.get('name', run.path)} ({data.get('kind', 'of unknown kind')})"
    digest = run.workload_hash[:12] if run.workload_hash else "not told"
    return [title, f"{len(run.log):,}", rate, *lengths, digest]


def _data(run: Run) -> dict[str, Any]:
    data = run.log.meta.get("data")
    return data if isinstance(data, dict) else {}


def settings(runs: Sequence[Run]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """(side names, rows that differ between or within sides, the other rows that are not at their
    defaults); a cell lists the values that a side has, in order; NONE where it has none."""
    names = list(dict.fromkeys(run.side for run in runs))
    keys = dict.fromkeys(key for run in runs for key in run.settings if key not in NO_AXIS[1:])
    differ, same = [], []
    for key in keys:
        cells = [_values([r for r in runs if r.side == name], key) for name in names]
        row = [key.replace("_", " "), *cells]
        if len(set(cells)) > 1 or any(", " in cell for cell in cells):
            differ.append(row)
        elif cells[0] not in (NONE, _default(key)):
            same.append(row)
    return names, differ, same


def _values(runs: Sequence[Run], key: str) -> str:
    found = {_word(value): value for value in (run.settings.get(key) for run in runs)}
    return ", ".join(sorted(found, key=lambda word: _rank(found[word])))


def _word(value: Any) -> str:
    return NONE if value in (None, "") else number(value)


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    if isinstance(value, (int, float)):
        return False, float(value), ""
    return True, 0.0, str(value)


def _default(key: str) -> str:
    for one in (*fields(PdExperiment), *fields(Experiment)):
        if one.name == key:
            return _word(one.default)
    return NONE


def how(runs: Sequence[Run]) -> Iterator[str]:
    """One line for each thing a reader must know to trust the numbers, or not to."""
    simulated = [run for run in runs if run.simulated]
    if simulated:
        yield (
            f"{plural(len(simulated), 'run')} simulated: time comes from a cost model, not from a "
            "clock."
        )
        yield from dict.fromkeys(_band(run) for run in simulated)
    yield from dict.fromkeys(_client(run) for run in runs if not run.simulated)
    for run in runs:
        meta = run.log.meta
        if _data(run).get("kind") == "stand-in":
            yield f"{run.path}: the requests are a stand-in for {_data(run).get('name')}."
        if meta.get("client_is_bottleneck"):
            yield f"{run.path}: the client was too slow to send on time; its latencies are its own."
        if meta.get("interrupted"):
            yield f"{run.path}: interrupted; what was not sent is not in it."
        lost = len(run.log) - int(run.log.finished.sum())
        if lost:
            yield (
                f"{run.path}: {plural(lost, 'request')} of {len(run.log):,} not served to the end; "
                "they stay in the denominator."
            )
    undated = [run.path for run in runs if not run.dated]
    if undated:
        yield (
            f"Date of {listed(undated[:4])}{' and others' if len(undated) > 4 else ''}: that of "
            "the file, which a copy changes."
        )


def _client(run: Run) -> str:
    meta = run.log.meta
    tool, version = meta.get("tool"), meta.get("version")
    if not isinstance(tool, str):
        return f"{run.path}: measured on a clock; the log does not say by what."
    missing = meta.get("missing")
    lacks = f"; it cannot tell {listed([str(m) for m in missing])}" if missing else ""
    return f"{run.side}: measured by {tool} {version or ''}".rstrip() + f"{lacks}."


def _band(run: Run) -> str:
    try:
        experiment = _experiment(run)
        cost = experiment.cost_model()
    except (InputError, TypeError):
        return f"{run.side}: the error of its cost model is not known here."
    if not isinstance(cost, StepCost):
        return f"{run.side}: a cost of your own (w, f, k, s); its error is yours to tell."
    found = error_band(cost.gpu, cost.model.name, cost.constants)
    if found is None:
        why = why_none(cost.gpu, cost.model.name, cost.constants)
        return f"{run.side}: the error of the simulator is not known: {why}."
    bands = [f"{n.upper()} {low:.2f} to {high:.2f}" for n, (low, high) in found.factors.items()]
    return (
        f"{run.side}: four of five measurements lay within these multiples of a simulated number: "
        f"{listed(bands)} ({found.basis}). A difference between two runs of one simulator errs "
        "less than either, and by how much nobody measured."
    )


def _experiment(run: Run) -> Experiment:
    config = run.log.meta["config"]
    kind = PdExperiment if "prefill_instances" in config else Experiment
    return kind.from_dict(config)


def environment(runs: Sequence[Run]) -> list[str]:
    """Versions and dates of the logs, each set once."""
    found: dict[str, list[str]] = {}
    for run in runs:
        versions = run.log.meta.get("versions")
        words = (
            ", ".join(f"{name} {value}" for name, value in versions.items())
            if isinstance(versions, dict)
            else "versions not told"
        )
        found.setdefault(words, []).append(run.side)
    lines = [f"{listed(list(dict.fromkeys(sides)))}: {words}" for words, sides in found.items()]
    dates = sorted({run.began.date().isoformat() for run in runs})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    seeds = sorted({str(run.log.meta.get("seed")) for run in runs})
    return [*lines, f"runs of {span} (UTC), seeds {listed(seeds)}"]


def shared_of_prompts(runs: Sequence[Run]) -> str:
    """How much of the prompts the prefix cache served, over all runs; empty where none did."""
    prompt = sum(int(run.log.requests["prompt_tokens"].sum()) for run in runs)
    cached = sum(int(run.log.requests["cached_tokens"].sum()) for run in runs)
    if not cached or not prompt:
        return ""
    return f"Of all prompt tokens, {percent(cached / prompt)} came from a prefix cache."
