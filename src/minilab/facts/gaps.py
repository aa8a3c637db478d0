"""The gaps between a request's output tokens, written out (GapLists) or as runs of steps (GapRuns).

Both answer the same questions. GapRuns answers them in whole ticks without writing the steps out:
a simulator that skips repeated steps would lose what it gained if every gap had to be listed.
Nothing here knows what a good gap is (that is ``facts.slo``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray, IntArray
from minilab.facts.gap_lists import GapLists, between, rank_of
from minilab.facts.gap_steps import StepTable
from minilab.facts.order_statistics import maxima, neighbours
from minilab.facts.ticks import TICKS_PER_SECOND, to_seconds

__all__ = ["RUN_COLUMNS", "SPAN_COLUMNS", "GapLists", "GapRuns", "Gaps"]

RUN_COLUMNS = ("start", "first", "slope", "n", "batch", "instance", "waiting", "used_blocks")
SPAN_COLUMNS = ("request", "token_time", "run_from", "run_to", "zeros")


@dataclass(frozen=True, eq=False)
class GapRuns:
    """Gaps as runs of decode steps and the spans in which requests took part (int64, ticks).

    ``runs`` (columns RUN_COLUMNS): step j of a run lasts ``first + slope*j``, so the run ends at
    ``start + n*first + slope*n*(n-1)/2``. Rows of one instance are contiguous and in time order;
    ``batch == 0`` marks steps without decodes. ``waiting`` is the queue's length when the run
    began, ``used_blocks`` the KV blocks in use when it ended.

    ``spans`` (columns SPAN_COLUMNS), sorted by request, then time: the token before the span came
    at ``token_time``, then the request decoded in the runs [run_from, run_to) of one instance;
    ``zeros`` counts the tokens beyond one per step (speculation). ``requests`` is R: a request
    need not have a span.

    A span's first gap lasts from token_time to the end of its first step; the first gap of a later
    run includes the pause before it; between two spans of a request lies one gap, from the last
    token of one to the token_time of the next (none where these are equal: a decode that was passed
    over in a run goes on after it); each of the ``zeros`` is a gap of 0. So a request
    with n output tokens has n - 1 gaps.
    """

    runs: dict[str, IntArray]
    spans: dict[str, IntArray]
    requests: int

    @cached_property
    def _table(self) -> StepTable:
        return StepTable.of(self.runs, self.spans)

    def counts(self) -> IntArray:
        """Number of gaps of each request, int64[R]."""
        return self._table.counts(self.requests)

    def per_request_quantile(self, q: float) -> FloatArray:
        """numpy's linear quantile of each request's own gaps, float64[R] s; NaN without gaps."""
        out = np.full(self.requests, np.nan)
        for request, terms in self._table.chunks():
            rank, weight = rank_of(terms.totals(), q)
            low, high = neighbours(terms, rank)
            out[request] = between(_seconds(low), _seconds(high), weight)
        return out

    def per_request_max(self) -> FloatArray:
        """The largest gap of each request, float64[R] s; NaN without gaps."""
        out = np.full(self.requests, np.nan)
        for request, terms in self._table.chunks():
            out[request] = _seconds(maxima(terms))
        return out

    def pooled_quantiles(self, qs: Sequence[float]) -> FloatArray:
        """Linear quantiles of all gaps together, float64[len(qs)] s; NaN without gaps."""
        terms = self._table.pooled()
        out = np.full(len(qs), np.nan)
        for i, q in enumerate(qs):
            rank, weight = rank_of(terms.totals(), q)
            if rank.size:
                low, high = neighbours(terms, rank)
                out[i] = between(_seconds(low), _seconds(high), weight)[0]
        return out

    def pooled_mean(self) -> float:
        """Mean of all gaps together in seconds; NaN without gaps."""
        terms = self._table.pooled()
        if not terms.n.size:
            return float("nan")
        sums = terms.n * terms.first + terms.slope * (terms.n * (terms.n - 1) // 2)
        # Python integers: summed over all requests, ticks pass 2**63 after six days of gaps
        ticks = sum(s * w for s, w in zip(sums.tolist(), terms.weight.tolist(), strict=True))
        return to_seconds(ticks) / int(terms.totals()[0])

    def to_lists(self) -> GapLists:
        """Every gap written out, oldest first (a span's zeros stand at its end)."""
        counts = self.counts()
        values = np.empty(int(counts.sum()))
        filled = 0
        for _, terms in self._table.chunks():
            size = int(terms.n.sum())
            begins = np.cumsum(terms.n) - terms.n
            step = np.arange(size) - np.repeat(begins, terms.n)
            ticks = np.repeat(terms.first, terms.n) + np.repeat(terms.slope, terms.n) * step
            values[filled : filled + size] = _seconds(ticks)
            filled += size
        return GapLists(values, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def select(self, mask: BoolArray) -> GapRuns:
        """The gaps of the requests where ``mask`` (bool[R]) holds; all runs stay."""
        kept = mask[self.spans["request"]]
        spans = {name: column[kept] for name, column in self.spans.items()}
        spans["request"] = (np.cumsum(mask) - 1)[spans["request"]]
        return GapRuns(self.runs, spans, int(mask.sum()))


Gaps = GapLists | GapRuns


def _seconds(ticks: IntArray) -> FloatArray:
    return ticks / TICKS_PER_SECOND
