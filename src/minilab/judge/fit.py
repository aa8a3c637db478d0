"""Fitting a few constants: damped Gauss-Newton on log errors, with weak priors and hard bounds.

Errors are logarithms, so that 2 ms on a 4 ms step count like 20 ms on a 40 ms step; beyond
``SOFT`` they count linearly (soft L1), so that one odd row can't pull everything. A prior keeps a
constant that the rows say nothing about where operator tables put it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from minilab.facts.cost import Constants
from minilab.facts.cost_constants import RANGES
from minilab.facts.errors import InputError
from minilab.judge.terms import FITTED, TERMS, Array, values

SOFT = 0.1
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
    problem = _Problem(equations, start, names, priors or {}, ranges, prior_weight)
    at = problem.start
    loss, damping = problem.loss(at), 1e-3
    for _ in range(steps):
        gradient, curvature = problem.slopes(at)
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
        tried = np.clip(at + step, problem.low, problem.high)
        new = problem.loss(tried)
        if new < loss:
            moved = float(np.max(np.abs(tried - at)))
            at, loss, damping = tried, new, damping / 3
            if moved < 1e-7:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return Fitted(problem.constants(at), problem.at_bound(at), loss)


class _Problem:
    """Everything in terms of z = log of the fitted constants."""

    def __init__(
        self,
        equations: Sequence[Equation],
        start: Constants,
        names: Sequence[str],
        priors: Mapping[str, float],
        ranges: Mapping[str, tuple[float, float]],
        prior_weight: float,
    ) -> None:
        self._base, self._names = start, names
        self._at = [TERMS.index(name) for name in names]
        self._sign = np.array([-1.0 if name[0] == "e" else 1.0 for name in names])
        self._x = values(start)
        self._a = np.array([e.features for e in equations])
        self._log_y = np.log([e.seconds for e in equations])
        self._weight = np.array([e.weight for e in equations])
        tiny = 1e-9
        self.low = np.log([max(tiny, ranges[name][0]) for name in names])
        self.high = np.log([ranges[name][1] for name in names])
        first = np.log([max(tiny, getattr(start, name)) for name in names])
        self.start = np.clip(first, self.low, self.high)
        wanted = [max(tiny, priors.get(name, getattr(start, name))) for name in names]
        self._prior = np.log(wanted)
        self._prior_weight = prior_weight

    def _values(self, z: Array) -> Array:
        x = self._x.copy()
        x[self._at] = np.exp(self._sign * z)
        return x

    def loss(self, z: Array) -> float:
        residual = (np.log(self._a @ self._values(z)) - self._log_y) / SOFT
        fitted = np.sum(self._weight * (np.sqrt(1 + residual**2) - 1))
        return float(fitted + self._prior_weight * np.sum((z - self._prior) ** 2))

    def slopes(self, z: Array) -> tuple[Array, Array]:
        x = self._values(z)
        total = self._a @ x
        jacobian = self._a[:, self._at] * x[self._at] * self._sign / total[:, None] / SOFT
        residual = (np.log(total) - self._log_y) / SOFT
        weight = self._weight / np.sqrt(1 + residual**2)
        gradient = jacobian.T @ (weight * residual)
        curvature = jacobian.T @ (weight[:, None] * jacobian)
        gradient = gradient + 2 * self._prior_weight * (z - self._prior)
        return gradient, curvature + 2 * self._prior_weight * np.eye(len(z))

    def constants(self, z: Array) -> Constants:
        found: dict[str, Any] = {
            name: float(v) for name, v in zip(self._names, np.exp(z), strict=True)
        }
        return replace(self._base, **found)

    def at_bound(self, z: Array) -> dict[str, float]:
        edge = (z <= self.low + 1e-6) | (z >= self.high - 1e-6)
        return {
            name: float(np.exp(v)) for name, v, out in zip(self._names, z, edge, strict=True) if out
        }
