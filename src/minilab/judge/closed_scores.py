"""What the closed form alone can tell, in seconds of work: half fitted, half scored, no simulation.

All engines at once: TensorRT-LLM and SGLang rows say less of how they were launched than vLLM's
(speculation, attention data parallel, budgets), so their errors are a report and nothing that ships
is fitted on them. And what a fixed constant does to a fitted one: the link share to ``e_comp``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
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

ROUNDS = 3
"""The queue in TTFT depends on the constants, so it is taken from the round before."""


def closed_scores(rows: Sequence[SiliconRow]) -> list[dict[str, Any]]:
    """Errors of the held half by engine and GPU family, constants fitted per engine and family."""
    found = []
    everything: dict[str, list[tuple[float, float]]] = {"tpot": [], "ttft": []}
    for engine in sorted({row.engine for row in rows}):
        for family in sorted({row.family for row in rows}):
            group = [row for row in rows if row.engine == engine and row.family == family]
            if len(group) < 24:
                continue
            pairs = _score(group, start(group))[0]
            found.append({"engine": engine, "family": family, **_errors(pairs)})
            for metric in everything:
                everything[metric] += pairs[metric]
    if found:
        found.append({"engine": "all", "family": "all", **_errors(everything)})
    return found


LINK_SHARES = (0.10, 0.15, 0.20, 0.30, 0.40)


def link_shares(rows: Sequence[SiliconRow], family: str = "hopper") -> list[dict[str, Any]]:
    """The fit of ``family``'s vLLM rows under several fixed link shares ``e_link``: the share of
    the tensor peak ``e_comp`` that comes out, and the errors of the held half."""
    group = [row for row in rows if row.engine == "vllm" and row.family == family]
    found = []
    for share in LINK_SHARES:
        pairs, constants = _score(group, replace(start(group), e_link=share))
        found.append({"e_link": share, "e_comp": constants.e_comp, **_errors(pairs)})
    return found


def _errors(pairs: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    return {metric: Error.of(values).to_dict() for metric, values in pairs.items()}


def _score(
    rows: Sequence[SiliconRow], constants: Constants
) -> tuple[dict[str, list[tuple[float, float]]], Constants]:
    """(predicted, measured) of the held half by metric, and the constants fitted on the other;
    those that are not fitted stay as in ``constants``."""
    split = halves(rows)
    forms = {row.digest: _form(row) for row in rows}
    for _ in range(ROUNDS):
        equations = []
        for row in split.fit:
            form = forms[row.digest]
            if form is not None:
                per_unit = matrix_of(row)
                wait = form.ttft(per_unit @ values(constants))
                equations.append(Equation(form.tpot @ per_unit, row.tpot))
                equations.append(Equation(wait @ per_unit, row.ttft, TTFT_WEIGHT))
        constants = fit(equations, constants, FITTED, PRIORS).constants
    x = values(constants)
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in split.held:
        form = forms[row.digest]
        if form is not None:
            made = form.latency(matrix_of(row) @ x)
            pairs["tpot"].append((made.tpot, row.tpot))
            pairs["ttft"].append((made.ttft, row.ttft))
    return pairs, constants


def _form(row: SiliconRow) -> ClosedForm | None:
    """None where the model does not fit into the memory we think it has."""
    try:
        return ClosedForm.of(row)
    except InputError:
        return None
