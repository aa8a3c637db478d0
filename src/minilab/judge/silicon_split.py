"""The disaggregated rows of AIConfigurator's table, predicted with the constants that ship.

Nothing is fitted on them. A row is used if it says what the simulator needs: a known model, how
many workers each pool has, and GPUs that the tensor-parallel size counts. Most rows leave the
number of workers out; those are refused, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from minilab.facts.errors import InputError
from minilab.judge.silicon_rows import deduplicate, model_name, number, silicon_concurrency
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

SYSTEMS = {"gb300": "b300"}  # the same chip; a Grace host is not modelled


@dataclass(frozen=True)
class SplitRow:
    """One measured point: a closed loop on two pools; times are seconds."""

    id: str
    engine: str
    experiment: PdExperiment
    ttft: float
    tpot: float

    @property
    def pair(self) -> str:
        """Model, format and system."""
        e = self.experiment
        return f"{e.model} {e.weight_dtype} on {e.gpu}"


@dataclass(frozen=True)
class SplitScore:
    """A row and what the simulator says of it (means, seconds)."""

    row: SplitRow
    ttft: float
    tpot: float

    def errors(self) -> tuple[float, float]:
        """Relative errors of TTFT and TPOT; above 0: predicted too slow."""
        return self.ttft / self.row.ttft - 1, self.tpot / self.row.tpot - 1


def read_split(rows: Iterable[Mapping[str, str]]) -> tuple[list[SplitRow], dict[str, int]]:
    """The rows that can be predicted, and how many were refused for which reason."""
    refused: Counter[str] = Counter()
    sound: dict[str, SplitRow] = {}
    usable = []
    for row in rows:
        if row["mode"] != "disagg":
            continue
        try:
            sound[row["id"]] = _parse(row)
            usable.append(row)
        except InputError as error:
            refused[str(error).partition(": ")[2]] += 1
    # Twins last: of two dumps of one measurement, one may say what the other leaves out.
    kept, twins = deduplicate(usable)
    if twins:
        refused["the same measurement twice"] = len(twins)
    return [sound[row["id"]] for row in kept], dict(refused)


def _parse(row: Mapping[str, str]) -> SplitRow:
    name = row["id"]
    counts = {}
    for side in ("prefill", "decode"):
        workers, tp = (number(row, f"{side}_{what}") for what in ("num_workers", "tp_size"))
        if not workers or not tp:
            raise InputError(f"{name}: number of workers not said")
        if number(row, f"{side}_attention_dp_size") > 1 or number(row, f"{side}_pp_size") > 1:
            raise InputError(f"{name}: attention data parallel or pipeline parallel")
        counts[side] = int(workers), int(tp)
    system = row["system"].removesuffix("_sxm")
    model = model_name(row)
    dtype = "native" if model in ("gpt-oss-120b", "qwen3-235b-a22b-fp8") else row["precision"]
    whole = Experiment(
        model=model,
        gpu=SYSTEMS.get(system, system),
        tp=counts["decode"][1],
        instances=counts["decode"][0],
        weight_dtype=dtype,
        prefix_cache=False,
        router="least-load",
    )
    concurrency = silicon_concurrency(row)
    experiment = PdExperiment.split(
        whole,
        counts["prefill"][0],
        counts["decode"][0],
        prefill_tp=counts["prefill"][1],
        prefill_router="least-load",
        trace="synthetic",
        prompt_tokens=int(number(row, "isl")),
        output_tokens=int(number(row, "osl")),
        concurrency=concurrency,
        limit=min(600, 3 * concurrency + 20),
    )
    try:
        experiment.check()
    except InputError:
        raise InputError(f"{name}: the model does not fit its GPUs as we count them") from None
    ttft, tpot = (number(row, f"silicon_{what}_ms") / 1e3 for what in ("ttft", "tpot"))
    return SplitRow(name, row["backend"], experiment, ttft, tpot)


def score(row: SplitRow) -> SplitScore:
    """Simulate a row; means over all its requests."""
    columns = row.experiment.run().requests
    many = columns["output_tokens"] > 1
    pace = (columns["finish"] - columns["first_token"])[many] / (columns["output_tokens"][many] - 1)
    ttft = columns["first_token"] - columns["arrival"]
    return SplitScore(row, float(np.mean(ttft)), float(np.mean(pace)))


def error_table(scores: Iterable[SplitScore]) -> list[dict[str, Any]]:
    """By pair, all rows last: number of rows, and median and p90 of the absolute errors."""
    scored = list(scores)
    groups: dict[str, list[SplitScore]] = {}
    for one in scored:
        groups.setdefault(one.row.pair, []).append(one)
    return [_errors(name, groups[name]) for name in sorted(groups)] + [_errors("all", scored)]


def _errors(name: str, scored: list[SplitScore]) -> dict[str, Any]:
    row: dict[str, Any] = {"pair": name, "rows": len(scored)}
    for at, metric in enumerate(("ttft", "tpot")):
        signed = [one.errors()[at] for one in scored]
        row[f"{metric}_median"] = median(map(abs, signed)) if signed else None
        row[f"{metric}_p90"] = float(np.quantile(np.abs(signed), 0.9)) if signed else None
        row[f"{metric}_bias"] = median(signed) if signed else None
    return row
