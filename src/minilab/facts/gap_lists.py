"""GapLists: the gaps between output tokens, written out in seconds, one list per request.

What an HTTP client, an engine or an imported file has. Import it from ``facts.gaps``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray, IntArray
from minilab.facts.errors import InputError


@dataclass(frozen=True, eq=False)
class GapLists:
    """Gaps written out. ``values``: float64[G] seconds; ``offsets``: int64[R+1].

    Row r's gaps are ``values[offsets[r]:offsets[r+1]]``, oldest first.
    """

    values: FloatArray
    offsets: IntArray

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> GapLists:
        """From one list of seconds per request."""
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.array([gap for row in rows for gap in row], dtype=np.float64), offsets)

    def counts(self) -> IntArray:
        """Number of gaps of each request, int64[R]."""
        return np.diff(self.offsets)

    def row(self, index: int) -> FloatArray:
        """One request's gaps in seconds."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def per_request_quantile(self, q: float) -> FloatArray:
        """numpy's linear quantile of each request's own gaps, float64[R] s; NaN without gaps."""
        rank, weight = rank_of(self.counts(), q)
        low, high = np.full((2, rank.size), np.nan)
        for r in np.flatnonzero(self.counts()).tolist():
            row, k = self.row(r), int(rank[r])
            above = min(k + 1, row.size - 1)
            ordered = np.partition(row, (k, above))
            low[r], high[r] = ordered[k], ordered[above]
        return between(low, high, weight)

    def per_request_max(self) -> FloatArray:
        """The largest gap of each request, float64[R] s; NaN without gaps."""
        out = np.full(self.offsets.size - 1, np.nan)
        has = self.counts() > 0
        if has.any():
            out[has] = np.maximum.reduceat(self.values, self.offsets[:-1][has])
        return out

    def pooled_quantiles(self, qs: Sequence[float]) -> FloatArray:
        """Linear quantiles of all gaps together, float64[len(qs)] s; NaN without gaps."""
        for q in qs:
            rank_of(self.offsets[-1:], q)
        if not self.values.size:
            return np.full(len(qs), np.nan)
        return np.asarray(np.quantile(self.values, list(qs)), dtype=np.float64)

    def pooled_mean(self) -> float:
        """Mean of all gaps together in seconds; NaN without gaps."""
        return float(self.values.mean()) if self.values.size else float("nan")

    def to_lists(self) -> GapLists:
        """Itself."""
        return self

    def select(self, mask: BoolArray) -> GapLists:
        """The gaps of the requests where ``mask`` (bool[R]) holds, in the same order."""
        counts = self.counts()
        offsets = np.concatenate([[0], np.cumsum(counts[mask])]).astype(np.int64)
        return GapLists(self.values[np.repeat(mask, counts)], offsets)


def rank_of(counts: IntArray, q: float) -> tuple[IntArray, FloatArray]:
    """Where numpy's linear quantile lies among ``counts`` sorted values: (rank below, weight).

    Raises:
        InputError: q is not in [0, 1].
    """
    if not 0.0 <= q <= 1.0:
        raise InputError(
            f"quantile {q}: must lie between 0 and 1; for the 99th percentile say 0.99"
        )
    position = np.maximum(counts - 1, 0) * q
    rank = np.floor(position).astype(np.int64)
    return rank, position - rank


def between(low: FloatArray, high: FloatArray, weight: FloatArray) -> FloatArray:
    """numpy's own interpolation, with its rounding: from the nearer end (``numpy.quantile``)."""
    step = high - low
    return np.where(weight < 0.5, low + step * weight, high - step * (1 - weight))
