"""Confidence intervals against printed tables and by counting how often they hold the truth.

What these tests exist for: an interval that promises 95 % and keeps 80 %, or is empty at the ends.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from minilab.facts.confidence import t_quantile
from minilab.facts.errors import InputError
from minilab.facts.slo import attainment_ci, bootstrap_ci, mean_ci


def test_t_quantiles_of_the_printed_table() -> None:
    table = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 9: 2.26216, 30: 2.04227, 120: 1.97993}
    for dof, value in table.items():
        assert t_quantile(0.975, dof) == pytest.approx(value, rel=1e-5)
    assert t_quantile(0.95, 5) == pytest.approx(2.01505, rel=1e-5)


def test_mean_interval_over_seeds() -> None:
    found = mean_ci([4.0, 5.0, 6.0])
    assert found.value == 5.0
    assert found.high == pytest.approx(5 + 4.30265 / math.sqrt(3), rel=1e-5)
    assert mean_ci([3.0]) == (3.0, None, None)
    with pytest.raises(InputError, match="no values"):
        mean_ci([])


def test_wilson_interval_by_hand_and_at_the_ends() -> None:
    found = attainment_ci(45, 50)
    assert (found.low, found.high) == pytest.approx((0.78640, 0.95652), abs=1e-4)
    assert attainment_ci(0, 20).low == 0.0 and 0.1 < (attainment_ci(0, 20).high or 0) < 0.2
    assert attainment_ci(20, 20).high == 1.0
    with pytest.raises(InputError, match="5 good out of 4"):
        attainment_ci(5, 4)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    draws = rng.normal(3.0, 2.0, size=(2000, 4))
    inside = [f.low <= 3.0 <= f.high for f in (mean_ci(row.tolist()) for row in draws)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
    counts = rng.binomial(80, 0.9, size=2000).tolist()
    inside = [f.low <= 0.9 <= f.high for f in (attainment_ci(k, 80) for k in counts)]
    assert 0.92 < np.mean(inside) < 0.98


def test_bootstrap_is_repeatable_and_close_to_the_t_interval() -> None:
    values = np.random.default_rng(1).normal(10, 3, size=200)
    found = bootstrap_ci(values, seed=7)
    assert found == bootstrap_ci(values, seed=7) and found != bootstrap_ci(values, seed=8)
    t = mean_ci(values.tolist())
    assert (found.low, found.high) == pytest.approx((t.low, t.high), abs=0.1)
    p99 = bootstrap_ci(values, lambda sample: float(np.quantile(sample, 0.99)))
    assert p99.low is not None and p99.low <= p99.value == np.quantile(values, 0.99)
    with pytest.raises(InputError, match="no NaN"):
        bootstrap_ci([1.0, math.nan])
    for confidence in (95, 0, 1):
        with pytest.raises(InputError, match=r"such as 0\.95"):
            bootstrap_ci(values, confidence=confidence)
