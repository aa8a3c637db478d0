"""Fitting the cost model's constants on measured rows (the descent itself is in ``log_fit``).

A prior keeps a constant that the rows say nothing about where operator tables put it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from minilab.facts.cost import Constants
from minilab.facts.cost_constants import RANGES
from minilab.facts.errors import InputError
from minilab.judge.log_fit import TINY, LogProblem
from minilab.judge.terms import FITTED, TERMS, Array, values

PRIOR_WEIGHT = 0.3
"""A prior counts like so many squared residuals of one natural log."""


@dataclass(frozen=True)
class Equation:
    """One measurement: ``features @ x`` should be ``seconds``. float64[8] in order of TERMS."""

    features: Array
    seconds: float
    weight: float = 1.0


class Fitted(NamedTuple):
    """The constants, and which of them stopped at the edge of their range (with the edge)."""

    constants: Constants
    at_bound: dict[str, float]
    loss: float

    def warning(self) -> str | None:
        """One line about constants that wanted to leave their range; None if none did."""
        if not self.at_bound:
            return None
        edges = ", ".join(f"{name} at {edge:g}" for name, edge in self.at_bound.items())
        return f"the fit left its range: {edges}; the number is a bound, not an estimate"


def fit(
    equations: Sequence[Equation],
    start: Constants,
    names: Sequence[str] = FITTED,
    priors: Mapping[str, float] | None = None,
    ranges: Mapping[str, tuple[float, float]] = RANGES,
    prior_weight: float = PRIOR_WEIGHT,
    steps: int = 60,
) -> Fitted:
    """The constants ``names`` that explain ``equations`` best; the others stay as in ``start``.

    ``priors``: where a constant lies if nothing speaks against it (default: ``start``).
    Raises InputError for fewer equations than constants.
    """
    if len(equations) < len(names):
        raise InputError(
            f"{len(equations)} measurements for {len(names)} constants; give more rows or fit fewer"
        )
    problem = _problem(equations, start, names, priors or {}, ranges, prior_weight)
    at, loss = problem.descend(steps)
    found: dict[str, Any] = {name: float(v) for name, v in zip(names, np.exp(at), strict=True)}
    edge = problem.at_bound(at)
    at_bound = {name: found[name] for name, out in zip(names, edge, strict=True) if out}
    return Fitted(replace(start, **found), at_bound, loss)


def _problem(
    equations: Sequence[Equation],
    start: Constants,
    names: Sequence[str],
    priors: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    prior_weight: float,
) -> LogProblem:
    first = [max(TINY, getattr(start, name)) for name in names]
    wanted = [max(TINY, priors.get(name, getattr(start, name))) for name in names]
    return LogProblem(
        features=np.array([e.features for e in equations]),
        seconds=np.array([e.seconds for e in equations]),
        weight=np.array([e.weight for e in equations]),
        fixed=values(start),
        at=[TERMS.index(name) for name in names],
        sign=np.array([-1.0 if name[0] == "e" else 1.0 for name in names]),
        first=np.log(first),
        prior=np.log(wanted),
        prior_weight=prior_weight,
        low=np.log([max(TINY, ranges[name][0]) for name in names]),
        high=np.log([ranges[name][1] for name in names]),
    )
