"""From timed steps to a cost model (w, f, k, s, q), with what it does not explain."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minilab.facts.cost import StepShape, WfksCost
from minilab.facts.cost_wfks import LIMITS
from minilab.facts.errors import InputError
from minilab.judge.engine_steps import Point, Timed
from minilab.judge.log_fit import Array, LogProblem

NAMES = ("w", "f", "k", "s", "q")
LEAST = 1e-12
"""Seconds; stands for 0 in a logarithm."""


def features(shape: StepShape) -> list[float]:
    """What w, f, k, s and q are multiplied with."""
    return [1.0, shape.num_tokens, shape.context, shape.num_seqs, shape.pairs]


def medians(found: Mapping[Point, Sequence[Timed]]) -> list[tuple[Point, StepShape, float]]:
    """Each point's middle step: (point, shape, seconds)."""
    rows = []
    for point, timed in found.items():
        middle = sorted(timed, key=lambda one: one.seconds)[len(timed) // 2]
        rows.append((point, middle.shape, statistics.median(one.seconds for one in timed)))
    return rows


def fit_steps(shapes: Sequence[StepShape], seconds: Sequence[float]) -> WfksCost:
    """The cost that explains the steps best, every error as a share of the step.

    Raises:
        InputError: fewer steps than coefficients.
    """
    if len(shapes) < len(NAMES):
        raise InputError(
            f"{len(shapes)} kinds of steps for {len(NAMES)} coefficients; measure more"
        )
    table = np.array([features(shape) for shape in shapes])
    problem = _problem(table, np.array(seconds))
    z, _ = problem.descend(400)
    x = np.where(z <= problem.low + 1e-6, 0.0, np.exp(z))
    return WfksCost(**dict(zip(NAMES, x.tolist(), strict=True)))


def _problem(table: Array, seconds: Array) -> LogProblem:
    """All coefficients free and positive; each starts as if it alone explained a fifth."""
    columns = range(len(NAMES))
    share = [np.median(seconds) / 5 / max(1.0, float(np.median(table[:, c]))) for c in columns]
    first = np.log(np.maximum(share, LEAST * 10))
    return LogProblem(
        features=table,
        seconds=seconds,
        weight=np.ones(len(seconds)),
        fixed=np.zeros(len(NAMES)),
        at=list(columns),
        sign=np.ones(len(NAMES)),
        first=first,
        prior=first,
        prior_weight=1e-6,
        low=np.full(len(NAMES), np.log(LEAST)),
        high=np.log([LIMITS[name] for name in NAMES]),
    )


def residuals(
    cost: WfksCost, rows: Sequence[tuple[Point, StepShape, float]]
) -> list[dict[str, Any]]:
    """For each kind of step: what was measured, what the cost says, and the error as a share."""
    return [
        {
            "step": point.name,
            "tokens": shape.num_tokens,
            "sequences": shape.num_seqs,
            "context": shape.context,
            "pairs": shape.pairs,
            "seconds": seconds,
            "predicted": cost.seconds(shape),
            "error": cost.seconds(shape) / seconds - 1,
        }
        for point, shape, seconds in rows
    ]


def error_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median, p90 and largest absolute error of the residuals, as shares."""
    errors = np.abs([row["error"] for row in rows])
    median, p90 = np.quantile(errors, [0.5, 0.9]).tolist()
    return {"median": median, "p90": p90, "max": float(errors.max())}
