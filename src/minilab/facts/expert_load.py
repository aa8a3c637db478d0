"""ExpertLoad: how a router's choices fall on experts, and how full the fullest GPU then is.

A layer of experts ends when its fullest GPU is done. Two causes make one fuller than the mean:

- **skew**: some experts are chosen more often (Zipf, lognormal, or counts that somebody recorded);
- **chance**: with few tokens even equal experts get unequal counts, and no placement mends that.

Both are in ``slowest``: a seeded draw of counts, averaged; a token chooses an expert at most once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json

DRAWS = 64
"""Draws averaged per layer and token count: the mean of a maximum, to about 1 %."""


class Slowest(NamedTuple):
    """Of the fullest GPU: tokens over the mean GPU's, and the share of its experts with a token."""

    imbalance: float
    touched: float


class ExpertLoad:
    """Chances of being chosen, [layers][experts]; each row sums to 1.

    Raises:
        InputError: no rows, rows of different length, a negative number, a row of zeros.
    """

    def __init__(self, loads: Sequence[Sequence[float]], top_k: int, seed: int = 0) -> None:
        try:
            table = np.array(loads, dtype=float)
        except ValueError:
            raise InputError("expert load: layers have different numbers of experts") from None
        if table.ndim != 2 or not table.size or not np.isfinite(table).all() or (table < 0).any():
            raise InputError("expert load: give [layers][experts] numbers of 0 or more")
        if (table.sum(axis=1) == 0).any():
            raise InputError("expert load: a layer in which no expert is ever chosen")
        if not 1 <= top_k <= table.shape[1]:
            raise InputError(f"expert load: top_k is {top_k}, there are {table.shape[1]} experts")
        self.table: FloatArray = table / table.sum(axis=1, keepdims=True)
        self.top_k = top_k
        self.seed = seed

    @property
    def experts(self) -> int:
        """Logical experts per layer."""
        return int(self.table.shape[1])

    def max_over_mean(self) -> float:
        """Fullest expert over the mean one, without chance; mean over the layers."""
        return float((self.table.max(axis=1) * self.experts).mean())

    def slowest(self, tokens: int, gpus: int, slots: Sequence[Sequence[int]]) -> Slowest:
        """The fullest of ``gpus`` GPUs when ``tokens`` tokens pass; mean over draws and layers.

        ``slots``: [layers][physical experts], the logical expert in each slot, GPU after GPU. A
        replicated expert's tokens are spread evenly over its replicas.
        """
        if tokens < 1:
            return Slowest(1.0, 0.0)
        rng = np.random.default_rng((self.seed, tokens, gpus))
        chance = np.minimum(1.0, self.table * self.top_k)
        full, touched = [], []
        for row, placed in zip(chance, slots, strict=True):
            at = np.asarray(placed)
            share = np.bincount(at, minlength=self.experts)[at]
            counts = rng.binomial(tokens, row, size=(DRAWS, self.experts))[:, at] / share
            per_gpu = counts.reshape(DRAWS, gpus, -1)
            sums = per_gpu.sum(axis=2)
            full.append((sums.max(axis=1) / np.maximum(sums.mean(axis=1), 1e-12)).mean())
            touched.append((per_gpu > 0).mean(axis=2).max(axis=1).mean())
        return Slowest(float(np.mean(full)), float(np.mean(touched)))

    def between(self, tokens: int, gpus: int, slots: tuple[tuple[int, ...], ...]) -> Slowest:
        """``slowest``, drawn at powers of 4 only and interpolated in the logarithm of ``tokens``.

        For a simulator that asks for thousands of token counts; ``slots`` must be hashable.
        """
        if tokens < 1:
            return Slowest(1.0, 0.0)
        power = math.log(tokens, 4)
        low = int(power + 1e-9)
        share = power - low
        a, b = _at_power(self, slots, gpus, low), _at_power(self, slots, gpus, low + 1)
        return Slowest(*(p + share * (q - p) for p, q in zip(a, b, strict=True)))


@lru_cache(maxsize=4096)
def _at_power(
    load: ExpertLoad, slots: tuple[tuple[int, ...], ...], gpus: int, power: int
) -> Slowest:
    return load.slowest(4**power, gpus, slots)


def parse_load(text: str, experts: int, top_k: int, layers: int = 4, seed: int = 0) -> ExpertLoad:
    """The load that ``text`` names.

    ``uniform``; ``zipf:1.0`` (chance of the r-th most popular expert ~ 1 / r^exponent);
    ``lognormal:0.6`` (sigma); ``recorded:FILE.json`` ([layers][experts] counts). Zipf ranks and
    lognormal draws differ from layer to layer, seeded by ``seed``.

    Raises:
        InputError: another name, a number that is none, a file that does not fit ``experts``.
    """
    kind, _, value = text.partition(":")
    if kind == "recorded":
        counts = read_json(Path(value))
        if not isinstance(counts, list) or not counts:
            raise InputError(f"{value}: expected a list of layers, each a list of expert counts")
        load = ExpertLoad(counts, top_k, seed)
        if load.experts != experts:
            raise InputError(f"{value}: {load.experts} experts per layer, the model has {experts}")
        return load
    if kind not in ("uniform", "zipf", "lognormal"):
        raise InputError(
            f"expert load {text!r}; give uniform, zipf:EXPONENT, lognormal:SIGMA or recorded:FILE"
        )
    spread = 0.0 if kind == "uniform" else _number(text, value)
    return ExpertLoad(_drawn(kind, spread, experts, layers, seed), top_k, seed)


@lru_cache(maxsize=64)
def _drawn(
    kind: str, spread: float, experts: int, layers: int, seed: int
) -> tuple[tuple[float, ...], ...]:
    rng = np.random.default_rng(seed)
    ranks = 1.0 / np.arange(1, experts + 1) ** spread
    rows = []
    for _ in range(layers):
        drawn = rng.permutation(ranks) if kind != "lognormal" else rng.lognormal(0, spread, experts)
        rows.append(tuple(float(x) for x in drawn))
    return tuple(rows)


def _number(text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 10:
        raise InputError(f"expert load {text!r}: give a number from 0 to 10 after the colon")
    return number
