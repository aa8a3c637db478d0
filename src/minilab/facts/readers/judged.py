"""Limits as the tools hold requests against them: one set of limits for all requests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minilab.facts.arrays import FloatArray, IntArray
from minilab.facts.errors import InputError
from minilab.facts.slo import SLACK
from minilab.facts.slo_set import SLO, SLOSet

Limits = SLO | SLOSet | str | None


def limits_of(slo: Limits) -> tuple[tuple[str, float], ...] | None:
    """(metric, seconds) for all requests; None without limits.

    Raises:
        InputError: limits by class, which no tool knows.
    """
    if isinstance(slo, str):
        slo = SLO.parse(slo)
    if isinstance(slo, SLOSet):
        if slo.classes or slo.default is None:
            raise InputError(
                f"SLO {slo}: limits by class; benchmark tools know one set for all requests; "
                f"give such as ttft=0.5,tpot=50ms"
            )
        slo = slo.default
    return None if slo is None else slo.limits


def judge(
    values: Mapping[str, FloatArray | None],
    limits: tuple[tuple[str, float], ...] | None,
    missing: int = 0,
) -> IntArray | None:
    """1 for each request within all limits, 0 for one that is not, int64[F].

    ``missing``: the verdict on a request that lacks a value. None without limits, or if the tool
    has no key for one of them, or the log cannot tell its metric.
    """
    if limits is None:
        return None
    columns = [(values.get(name), seconds) for name, seconds in limits]
    verdict = None
    for column, seconds in columns:
        if column is None:
            return None
        here = np.where(np.isnan(column), missing, (column <= seconds + SLACK).astype(np.int64))
        verdict = here if verdict is None else np.minimum(verdict, here)
    return verdict
