"""How far a number may be off by chance: intervals for a share, for a mean over seeds, for any.

A sweep that ranks configurations by three seeds ranks noise unless it says so. Plain ``math``, so
that the base install suffices. Import from ``facts.slo``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.errors import InputError


class Interval(NamedTuple):
    """A value and the bounds of its confidence interval; None where nothing bounds it."""

    value: float
    low: float | None
    high: float | None


def attainment_ci(good: int, total: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for the share good / total.

    It stays within [0, 1] and is honest at 0 and 1, where the normal approximation has width 0.
    It holds for requests that succeed independently; under load they do not (one long queue fails
    many), so it is the least width: repeat over seeds for the real one.

    Raises:
        InputError: total < 1, or good outside 0..total, or confidence outside (0, 1).
    """
    if total < 1 or not 0 <= good <= total:
        raise InputError(
            f"attainment of {good} good out of {total}: needs 0 <= good <= total, 1 up"
        )
    z = NormalDist().inv_cdf(0.5 + _half(confidence))
    share, spread = good / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    width = z * math.sqrt(share * (1 - share) / total + spread / total / 4) / (1 + spread)
    low = 0.0 if good == 0 else max(0.0, middle - width)
    high = 1.0 if good == total else min(1.0, middle + width)
    return Interval(share, low, high)


def mean_ci(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean and Student's t interval, for one value per seed; no bounds from a single value.

    Raises:
        InputError: no value, or confidence outside (0, 1).
    """
    half = _half(confidence)
    if not len(values):
        raise InputError("a mean over no values; give at least one, two for an interval")
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Interval(mean, None, None)
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    width = t_quantile(0.5 + half, n - 1) * math.sqrt(variance / n)
    return Interval(mean, mean - width, mean + width)


def bootstrap_ci(
    values: Sequence[float] | FloatArray,
    statistic: Callable[[FloatArray], float] = lambda sample: float(np.mean(sample)),
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of any statistic (default: the mean); the same seed, the same answer.

    Raises:
        InputError: no value, a NaN, fewer than 100 resamples, or confidence outside (0, 1).
    """
    half = _half(confidence)
    data = np.asarray(values, dtype=np.float64)
    if not data.size or np.isnan(data).any():
        raise InputError("bootstrap: needs at least one value and no NaN; drop what is unavailable")
    if resamples < 100:
        raise InputError(
            f"bootstrap: {resamples} resamples; the ends of the interval need 100 or more"
        )
    rng = np.random.default_rng(seed)
    found = [statistic(data[rng.integers(data.size, size=data.size)]) for _ in range(resamples)]
    low, high = np.quantile(found, [0.5 - half, 0.5 + half]).tolist()
    return Interval(float(statistic(data)), low, high)


def t_quantile(p: float, dof: int) -> float:
    """The p-quantile of Student's t with ``dof`` degrees of freedom, 0.5 <= p < 1.

    Bisection on the angle of the closed form for whole dof (Abramowitz & Stegun 26.7.3, 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_between(middle, dof) < 2 * p - 1 else (low, middle)
    return math.sqrt(dof) * math.tan(low)


def _t_between(theta: float, dof: int) -> float:
    """P(-t < T < t) for t = sqrt(dof) * tan(theta)."""
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = dof % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(dof // 2):
        total += term
        term *= cosine * cosine * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    return (theta + sine * total) * 2 / math.pi if odd else sine * total


def _half(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise InputError(f"confidence {confidence}: must lie between 0 and 1, such as 0.95")
    return confidence / 2
