"""Predicting a run from its description: by the simulator, or by the selector's closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping

from minilab.facts.cost import StepCost
from minilab.facts.error_band import error_band
from minilab.facts.errors import InputError
from minilab.facts.slo import SLOSet
from minilab.facts.user_input import unknown_name
from minilab.facts.workload import Workload
from minilab.judge.filed_prediction import Said
from minilab.judge.selector.choose import choose_now
from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.tables import tables
from minilab.sim.experiment import Experiment
from minilab.sim.sweep_row import NUMBERS, numbers

QUANTITIES = ("attainment", "goodput_per_gpu", "ttft_p50", "ttft_p99", "tpot_mean", "itl_p99")
SELECTOR_SLO = ("ttft", "itl")


def simulated(experiment: Experiment, work: Workload, slos: SLOSet) -> dict[str, Said]:
    """What the simulator says, with the band of its known error where there is one."""
    row = numbers(experiment.run(work), str(slos), experiment.gpus)
    cost = experiment.cost_model()
    band = None
    if isinstance(cost, StepCost):
        band = error_band(cost.gpu, cost.model.name, cost.constants)
    said = {}
    for name in QUANTITIES:
        value = row[name]
        if value is None:
            continue
        ends = band.around(name.partition("_")[0], value) if band else None
        low, high = ends or (None, None)
        said[name] = Said(value, low, high, "simulator")
    return said


def selected(experiment: Experiment, work: Workload, slos: SLOSet) -> dict[str, Said]:
    """What the closed form says of plain serving of mean lengths at the mean rate.

    Raises:
        InputError: limits other than one ttft and one itl for all, or a setting it has no word for.
    """
    limits = dict(slos.default.limits) if slos.default else {}
    if slos.classes or set(limits) != set(SELECTOR_SLO):
        raise InputError(
            f"the selector knows one limit on ttft and one on itl, not {slos}; predict by simulator"
        )
    about = work.stats()
    if about["rate"] is None:
        raise InputError("all requests arrive at once, the selector needs a rate; use simulator")
    settings = settings_of(
        {
            "rate": about["rate"],
            "prompt": about["input"]["mean"],
            "output": about["output"]["mean"],
            "model": experiment.model,
            "gpu": experiment.gpu,
            "gpus": experiment.gpus,
            **limits,
        }
    )
    verdict = choose_now(tables(), settings)
    if verdict is None:
        raise InputError(f"{experiment.model} does not fit on {experiment.gpus} x {experiment.gpu}")
    found = {
        "attainment": verdict.attainment,
        "goodput_per_gpu": verdict.goodput_per_gpu,
        "ttft_mean": verdict.ttft,
        "tpot_mean": verdict.itl,
    }
    known = {name: v for name, v in found.items() if math.isfinite(v)}
    return {name: Said(float(value), None, None, "selector") for name, value in known.items()}


def expected(words: list[str], known: Mapping[str, Said]) -> dict[str, Said]:
    """A person's own ranges, ``NAME=LOW..HIGH``, added to ``known`` or in its place.

    Raises:
        InputError: a word of another form, a name of no number, or a range upside down.
    """
    found = dict(known)
    for word in words:
        name, equals, ends = word.partition("=")
        low, dots, high = ends.partition("..")
        try:
            bounds = float(low), float(high)
        except ValueError:
            bounds = math.nan, math.nan
        if not equals or not dots or not all(map(math.isfinite, bounds)):
            raise InputError(f"--expect {word}; write NAME=LOW..HIGH, such as ttft_p99=0.2..0.5")
        if not bounds[0] < bounds[1]:
            raise InputError(f"--expect {word}: {low} is not below {high}; write the lower first")
        name = name.strip()
        if name not in NUMBERS:
            raise InputError(f"--expect: {unknown_name('number', name, NUMBERS)}")
        found[name] = Said(sum(bounds) / 2, *bounds, "person")
    return found
