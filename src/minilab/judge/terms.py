"""How a step's cost depends on the constants: linearly, so that fitting is small linear algebra.

A step costs ``FEATURES @ MATRIX @ x``: its features (how many steps, tokens, sequences, ...) times
what each constant charges for one of them. ``x`` holds 1/efficiency and seconds (``TERMS``).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minilab.facts.cost import FUSED_ALL_REDUCE, Constants, LinearCost
from minilab.facts.hardware import GPU
from minilab.judge.protocol import Deployed, cost_of

Array = NDArray[np.float64]

TERMS = ("e_mem", "e_comp", "e_moe", "e_link", "t_layer", "t_seq", "t_ar", "t_req")
FITTED = ("e_mem", "e_comp", "e_moe", "t_layer", "t_seq", "t_req")
"""The six constants that are fitted for a GPU family; link and all-reduce latency stay fixed."""

FEATURES = ("steps", "tokens", "touched", "seqs", "context", "window", "pairs", "requests")


class Shape(NamedTuple):
    """What an expert layer and a window make of a batch: chance per token, tokens."""

    expert_share: float
    window: int


def shape_of(row: Deployed) -> Shape:
    """The two numbers that turn a step into features."""
    linear = cost_of(row, Constants()).linear()
    return Shape(linear.expert_share, linear.window)


def values(constants: Constants) -> Array:
    """``x``: float64[8], 1/efficiency for shares and seconds for latencies, in order of TERMS."""
    given = [getattr(constants, name) for name in TERMS]
    return np.array([1 / v if n[0] == "e" else v for n, v in zip(TERMS, given, strict=True)])


def matrix(row: Deployed) -> Array:
    """float64[8 features, 8 terms]: seconds per feature and unit of ``x``, for a row's model.

    Each column is the cost model itself with one constant on and the others off.
    """
    columns = [_column(cost_of(row, _only(name, row)).linear(), name) for name in TERMS]
    found = np.array(columns).T
    if row.launch.fused:  # cost_of sets t_ar for such a row, whatever it is given
        at = TERMS.index("t_ar")
        fixed = cost_of(row, _only("t_ar", row)).linear().fixed
        found[0] -= fixed
        found[0, at] = fixed / FUSED_ALL_REDUCE
    return found


def row_values(row: Deployed, x: Array) -> Array:
    """``x`` as it holds for ``row``: its all-reduce latency is the fused one where it is fused."""
    if not row.launch.fused:
        return x
    changed = x.copy()
    changed[TERMS.index("t_ar")] = FUSED_ALL_REDUCE
    return changed


def moe_launches(gpu: GPU) -> float:
    """What ``Constants.moe_launches`` is on ``gpu``: known, not fitted.

    Data-centre Blackwell runs routing and experts as one fused kernel; elsewhere a MoE layer
    launches about twice as much as a dense one.
    """
    return 0.0 if gpu.sm in (100, 103) else 1.0


def _only(name: str, row: Deployed) -> Constants:
    off: dict[str, Any] = {n: math.inf if n[0] == "e" else 0.0 for n in TERMS}
    return Constants(**{**off, name: 1.0}, moe_launches=moe_launches(row.gpu))


def _column(linear: LinearCost, name: str) -> list[float]:
    return [
        linear.fixed,
        linear.per_token,
        linear.expert_read,
        linear.per_seq,
        linear.per_context,
        linear.per_window_context,
        linear.per_pair,
        1.0 if name == "t_req" else 0.0,
    ]
