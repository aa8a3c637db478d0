"""What each term is worth: take it away, fit the others again, and see the held-back half suffer.

All on frozen compositions, so the schedule is that of the full model; what a term does to the
schedule is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minilab.facts.cost import Constants
from minilab.judge.closed_form import ClosedForm
from minilab.judge.fit import Equation, fit
from minilab.judge.scores import Error
from minilab.judge.silicon_fit import PRIORS, Frozen, matrix_of
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.split import Split
from minilab.judge.terms import FEATURES, FITTED, TERMS, Array, values

Change = Callable[[SiliconRow, Array], Array]


def _without(term: str) -> Change:
    def change(row: SiliconRow, matrix: Array) -> Array:
        matrix = matrix.copy()
        matrix[:, TERMS.index(term)] = 0.0
        return matrix

    return change


def _all_experts(row: SiliconRow, matrix: Array) -> Array:
    """Every step reads every expert: what depends on the share touched moves to the step."""
    matrix = matrix.copy()
    matrix[FEATURES.index("steps")] += matrix[FEATURES.index("touched")]
    matrix[FEATURES.index("touched")] = 0.0
    return matrix


def _top_k_only(row: SiliconRow, matrix: Array) -> Array:
    """Every step reads top-k of the experts, however many tokens it has."""
    matrix = matrix.copy()
    share = row.spec.top_k / row.spec.experts if row.spec.experts else 0.0
    matrix[FEATURES.index("steps")] += share * matrix[FEATURES.index("touched")]
    matrix[FEATURES.index("touched")] = 0.0
    return matrix


CHANGES: dict[str, Change | None] = {
    "the full model": None,
    "a MoE step reads all experts": _all_experts,
    "a MoE step reads top-k experts": _top_k_only,
    "no launch per layer (t_layer)": _without("t_layer"),
    "no host time per sequence (t_seq)": _without("t_seq"),
    "no time per request (t_req)": _without("t_req"),
    "no latency per all-reduce (t_ar)": _without("t_ar"),
    "no bytes on the link (e_link)": _without("e_link"),
}


def ablate(
    split: Split, start: Callable[[Sequence[SiliconRow]], Constants], families: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Errors of the held-back half for each of ``CHANGES``, as plain JSON values."""
    frozen = {}
    for family in families:
        rows = [[row for row in part if row.family == family] for part in split]
        if min(len(part) for part in rows) >= len(FITTED):
            begin = start(rows[0])
            frozen[family] = (begin, [Frozen.of(part, begin) for part in rows])
    result = {}
    for name, change in CHANGES.items():
        pairs: dict[str, list[tuple[float, float]]] = {"tpot": [], "ttft": []}
        for begin, (fit_on, held) in frozen.values():
            equations = fit_on.equations(change)
            x = values(fit(equations, begin, priors=PRIORS).constants)
            for at, equation in enumerate(held.equations(change)):
                made = float(equation.features @ x)
                pairs["ttft" if at % 2 else "tpot"].append((made, equation.seconds))
        result[name] = {metric: Error.of(found).to_dict() for metric, found in pairs.items()}
    result["no prefill of others (decode step alone)"] = _alone(frozen)
    return result


def _alone(frozen: dict[str, tuple[Constants, list[Frozen]]]) -> dict[str, Any]:
    """TPOT as one decode step, constants fitted to that."""
    pairs = []
    names = [name for name in FITTED if name != "t_req"]
    for begin, parts in frozen.values():
        made = [
            [Equation(ClosedForm.of(row).decode @ matrix_of(row), row.tpot) for row in part.rows]
            for part in parts
        ]
        x = values(fit(made[0], begin, names, PRIORS).constants)
        pairs += [(float(e.features @ x), e.seconds) for e in made[1]]
    assert np.isfinite(pairs).all()
    return {"tpot": Error.of(pairs).to_dict()}
