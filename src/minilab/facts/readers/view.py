"""What the tools look at in a log: its finished requests, and statistics the way they take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minilab.facts.arrays import FloatArray, IntArray
from minilab.facts.metrics import metric
from minilab.facts.runlog import RunLog

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class View:
    """F finished requests of a log: seconds float64[F] (NaN: has none), None if it cannot tell.

    ``gaps``: all gaps between their tokens, zeros included; ``placed``: whether each zero stands
    after the gap of its chunk. ``served_duration``: first arrival to last finish of these.
    """

    sent: int
    failed: int
    completed: int
    duration: float | None
    served_duration: float | None
    tokens: IntArray
    ttft: FloatArray | None
    tpot: FloatArray | None
    e2e: FloatArray | None
    gaps: FloatArray | None
    mean_gaps: FloatArray | None
    offsets: IntArray | None
    placed: bool

    @classmethod
    def of(cls, log: RunLog) -> View:
        """The view of a log."""
        finished = log.finished
        done = log.select(finished)
        lists = None if done.gaps is None else done.gaps.to_lists()
        means = None
        if lists is not None:
            sums = np.concatenate([[0.0], np.cumsum(lists.values)])[lists.offsets]
            counts = lists.counts()
            means = np.where(counts > 0, np.diff(sums) / np.maximum(counts, 1), np.nan)
        chunks = log.meta.get("chunks")
        return cls(
            sent=len(log),
            failed=int(np.isin(log.requests["status"], ("failed", "rejected")).sum()),
            completed=int(finished.sum()),
            duration=log.duration if log.duration > 0 else None,
            served_duration=_served(done, log),
            tokens=done.requests["output_tokens"],
            ttft=metric(done, "ttft"),
            tpot=metric(done, "tpot"),
            e2e=metric(done, "e2e"),
            gaps=None if lists is None else lists.values,
            mean_gaps=means,
            offsets=None if lists is None else lists.offsets,
            placed=isinstance(chunks, dict) and bool(chunks.get("zeros_placed")),
        )

    @property
    def chunk_gaps(self) -> FloatArray | None:
        """Gaps between chunks: a gap of 0 is a token that shared one."""
        return None if self.gaps is None else self.gaps[self.gaps > 0]

    def spread_gaps(self) -> FloatArray | None:
        """Each chunk's gap spread evenly over its tokens; None if the chunks are not known.

        Tokens that shared the first chunk have no gap.
        """
        if self.gaps is None or self.offsets is None:
            return None
        zero = self.gaps == 0
        if not zero.any():
            return self.gaps
        if not self.placed:
            return None
        begins = ~zero
        begins[self.offsets[:-1][np.diff(self.offsets) > 0]] = True
        first = np.flatnonzero(begins)
        length = np.diff(np.concatenate([first, [self.gaps.size]]))
        each = np.repeat(self.gaps[first] / length, length)
        return each[each > 0]


def _served(done: RunLog, log: RunLog) -> float | None:
    if "arrival" in (log.meta.get("missing") or ()):
        return log.duration if log.duration > 0 else None
    arrival, finish = done.requests["arrival"], done.requests["finish"]
    if np.isnan(arrival).all() or np.isnan(finish).all():
        return None
    span = float(np.nanmax(finish) - np.nanmin(arrival))
    return span if span > 0 else None


def stats(
    values: FloatArray | None, factor: float, mean: str = "mean", p50: str = "p50"
) -> dict[str, Any] | None:
    """Mean, standard deviation and linear percentiles of the values that are not NaN, x factor.

    ``mean`` and ``p50``: what the tool calls these. None if there is no value.
    """
    if values is None or np.isnan(values).all():
        return None
    values = values[~np.isnan(values)] * factor
    found = dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(),
                     strict=True))  # fmt: skip
    return {
        mean: float(values.mean()),
        p50: found.pop("p50"),
        **found,
        "std": float(values.std()),
    }


def step_stats(
    values: FloatArray | None, weights: IntArray | None, factor: float
) -> dict[str, Any] | None:
    """guidellm's: weighted mean, and percentiles where the cumulated weight reaches q."""
    if values is None:
        return None
    weight = np.ones(values.size) if weights is None else weights.astype(np.float64)
    kept = ~np.isnan(values) & (weight > 0)
    if not kept.any():
        return None
    distinct, where = np.unique(values[kept] * factor, return_inverse=True)
    share = np.bincount(where, weights=weight[kept]) / weight[kept].sum()
    rank = np.searchsorted(np.cumsum(share), list(QUANTILES.values()), side="left")
    at = distinct[np.minimum(rank, distinct.size - 1)].tolist()
    found = dict(zip(QUANTILES, at, strict=True))
    return {"mean": float((distinct * share).sum()), "median": found.pop("p50"), **found}
