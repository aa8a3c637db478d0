"""All engines at once, by the closed form alone: half fitted, half scored, no simulation.

TensorRT-LLM and SGLang rows say less of how they were launched than vLLM's (speculation, attention
data parallel, budgets), so their errors are a report and nothing that ships is fitted on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.judge.closed_form import ClosedForm
from minilab.judge.fit import Equation, fit
from minilab.judge.scores import Error
from minilab.judge.silicon import start
from minilab.judge.silicon_fit import PRIORS, TTFT_WEIGHT, matrix_of
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.split import halves
from minilab.judge.terms import FITTED, values

Pairs = dict[str, list[tuple[float, float]]]

ROUNDS = 3
"""The queue in TTFT depends on the constants, so it is taken from the round before."""


def closed_scores(rows: Sequence[SiliconRow]) -> list[dict[str, Any]]:
    """Errors of the held half by engine and GPU family, constants fitted per engine and family."""
    found = []
    everything: Pairs = {"tpot": [], "ttft": []}
    for engine in sorted({row.engine for row in rows}):
        for family in sorted({row.family for row in rows}):
            group = [row for row in rows if row.engine == engine and row.family == family]
            if len(group) < 24:
                continue
            split = halves(group)
            pairs = pairs_of(split.held, fit_closed(split.fit, start(group)))
            found.append({"engine": engine, "family": family, **errors_of(pairs)})
            for metric in everything:
                everything[metric] += pairs[metric]
    if found:
        found.append({"engine": "all", "family": "all", **errors_of(everything)})
    return found


def errors_of(pairs: Pairs) -> dict[str, Any]:
    """The error of each metric, as plain JSON values."""
    return {metric: Error.of(values).to_dict() for metric, values in pairs.items()}


def fit_closed(
    rows: Sequence[SiliconRow], constants: Constants, weights: Sequence[float] | None = None
) -> Constants:
    """The six constants fitted on ``rows`` (weights: 1 each); the others stay as given."""
    forms = [_form(row) for row in rows]
    for _ in range(ROUNDS):
        equations = []
        for row, form, weight in zip(rows, forms, weights or [1.0] * len(rows), strict=True):
            if form is not None:
                per_unit = matrix_of(row)
                wait = form.ttft(per_unit @ values(constants))
                equations.append(Equation(form.tpot @ per_unit, row.tpot, weight))
                equations.append(Equation(wait @ per_unit, row.ttft, TTFT_WEIGHT * weight))
        constants = fit(equations, constants, FITTED, PRIORS).constants
    return constants


def pairs_of(rows: Sequence[SiliconRow], constants: Constants) -> Pairs:
    """(predicted, measured) seconds by metric, of the rows that fit their memory."""
    x = values(constants)
    pairs: Pairs = {"tpot": [], "ttft": []}
    for row in rows:
        form = _form(row)
        if form is not None:
            made = form.latency(matrix_of(row) @ x)
            pairs["tpot"].append((made.tpot, row.tpot))
            pairs["ttft"].append((made.ttft, row.ttft))
    return pairs


def _form(row: SiliconRow) -> ClosedForm | None:
    """None where the model does not fit into the memory we think it has."""
    try:
        return ClosedForm.of(row)
    except InputError:
        return None
