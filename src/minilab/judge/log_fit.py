"""Fitting positive coefficients: damped Gauss-Newton on log errors, weak priors and hard bounds.

Errors are logarithms, so that 2 ms on a 4 ms step count like 20 ms on a 40 ms step; beyond
``SOFT`` they count linearly (soft L1), so that one odd row can't pull everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SOFT = 0.1
TINY = 1e-9
"""Stands for 0 where a logarithm is taken."""


@dataclass(frozen=True)
class LogProblem:
    """``features @ x`` should be ``seconds``; some of ``x`` are free, as z = log of each.

    Attributes:
        features: float64[rows, columns]; seconds, weight: float64[rows].
        fixed: float64[columns], the values of ``x`` that are not free.
        at: columns of the free ones; x = exp(sign * z) there (sign -1: fitted as its inverse).
        first, prior, low, high: float64[free], z at the start, where it lies if nothing speaks
            against it (with ``prior_weight``), and its bounds.
    """

    features: Array
    seconds: Array
    weight: Array
    fixed: Array
    at: Sequence[int]
    sign: Array
    first: Array
    prior: Array
    prior_weight: float
    low: Array
    high: Array

    def descend(self, steps: int) -> tuple[Array, float]:
        """The best z in at most so many steps, and its loss."""
        at = np.clip(self.first, self.low, self.high)
        loss, damping = self.loss(at), 1e-3
        for _ in range(steps):
            gradient, curvature = self.slopes(at)
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
            tried = np.clip(at + step, self.low, self.high)
            new = self.loss(tried)
            if new < loss:
                moved = float(np.max(np.abs(tried - at)))
                at, loss, damping = tried, new, damping / 3
                if moved < 1e-7:
                    break
            else:
                damping *= 4
                if damping > 1e9:
                    break
        return at, loss

    def values(self, z: Array) -> Array:
        """``x`` for these z."""
        x = self.fixed.copy()
        x[list(self.at)] = np.exp(self.sign * z)
        return x

    def loss(self, z: Array) -> float:
        """Weighted soft-L1 loss of the log errors, and the prior's pull."""
        residual = (np.log(self.features @ self.values(z)) - np.log(self.seconds)) / SOFT
        fitted = np.sum(self.weight * (np.sqrt(1 + residual**2) - 1))
        return float(fitted + self.prior_weight * np.sum((z - self.prior) ** 2))

    def slopes(self, z: Array) -> tuple[Array, Array]:
        """Gradient float64[free] and Gauss-Newton curvature float64[free, free]."""
        x, at = self.values(z), list(self.at)
        total = self.features @ x
        jacobian = self.features[:, at] * x[at] * self.sign / total[:, None] / SOFT
        residual = (np.log(total) - np.log(self.seconds)) / SOFT
        weight = self.weight / np.sqrt(1 + residual**2)
        gradient = jacobian.T @ (weight * residual)
        curvature = jacobian.T @ (weight[:, None] * jacobian)
        gradient = gradient + 2 * self.prior_weight * (z - self.prior)
        return gradient, curvature + 2 * self.prior_weight * np.eye(len(z))

    def at_bound(self, z: Array) -> NDArray[np.bool_]:
        """Which of z stopped at the edge of its range."""
        return np.asarray((z <= self.low + 1e-6) | (z >= self.high - 1e-6))
