"""The known error of a simulated run: the band around its TTFT and TPOT, as JSON and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minilab.cli.output import duration
from minilab.facts.cost import StepCost
from minilab.facts.error_band import COVERAGE, error_band, why_none
from minilab.facts.expert_cost import ExpertCost
from minilab.sim.experiment import Experiment

QUANTILES = ("p50", "p90", "p99", "mean")
OVERLOAD = 0.5


def band_of(experiment: Experiment, result: Mapping[str, Any]) -> dict[str, Any]:
    """The band as JSON: ``ttft`` and ``tpot`` are None where nobody measured the error.

    Each quantile becomes [low, high]: where four of five measurements would lie if this run erred
    as the fit did where it had not looked.
    """
    cost = experiment.cost_model()
    nothing = {"coverage": COVERAGE, "ttft": None, "tpot": None}
    if isinstance(cost, ExpertCost):
        return {**nothing, "basis": None, "why_none": "no run with expert parallelism was timed"}
    if not isinstance(cost, StepCost):
        return {**nothing, "basis": None, "why_none": "a cost of your own: its error is yours"}
    found = error_band(cost.gpu, cost.model.name, cost.constants)
    if found is None:
        why = why_none(cost.gpu, cost.model.name, cost.constants)
        return {**nothing, "basis": None, "why_none": why}
    band: dict[str, Any] = {**nothing, "basis": found.basis, "why_none": None}
    band["factors"] = {name: list(ends) for name, ends in found.factors.items()}
    for name in ("ttft", "tpot"):
        known = result[name]
        if known is not None:
            band[name] = {q: found.around(name, known[q]) for q in QUANTILES}
    return band


def band_lines(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The band for people."""
    band = result["error_band"]
    if band["why_none"]:
        return [("error", f"not known: {band['why_none']}")]
    lines = []
    for name in ("ttft", "tpot"):
        if band[name] is not None:
            ends = ", ".join(f"{q} {_between(band[name][q])}" for q in ("p50", "p90", "p99"))
            lines.append((f"{name} band", ends))
    about = f"four of five measurements lay so; {band['basis']}"
    return [*lines, ("", about)] if lines else [("error", about)]


def _between(ends: list[float]) -> str:
    return f"{duration(ends[0])} to {duration(ends[1])}"


def overload_note(result: Mapping[str, Any]) -> str | None:
    """A warning where most of TTFT is queue: there an error of a step is paid many times."""
    if result["queue"] is None or result["ttft"] is None or not result["ttft"]["mean"]:
        return None
    cost = result["cost"]
    outside = cost.get("t_req", cost.get("constants", {}).get("t_req", 0.0))
    waited = (result["queue"]["mean"] - outside) / result["ttft"]["mean"]
    if waited < OVERLOAD:
        return None
    return (
        f"{waited:.0%} of TTFT is waiting: near overload a few percent of TPOT become tens of "
        "percent of TTFT, beyond the band"
    )
