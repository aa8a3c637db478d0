"""StepTable: what runs of decode steps and the spans of requests over them say about gaps.

The bookkeeping behind ``facts.gaps.GapRuns``: which gaps requests share (the steps of a run) and
which are one request's own (the first gap of a span, the gap between two spans, the zeros of
speculative steps). All in whole ticks; no quantile here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minilab.facts.arrays import IntArray
from minilab.facts.order_statistics import Progressions

CHUNK = 200_000  # progressions worked on at once: about 30 MB, whatever the log's size


@dataclass(frozen=True, eq=False)
class StepTable:
    """Progressions of gaps, and for each span (int64[S]) which of them it has.

    ``first``, ``slope``, ``n``: int64[P + 3*S], ``n == 0`` marks an absent one. The first P rows
    are shared pieces: a run with decodes gives the piece of its first step, which carries the pause
    since the instance's previous decode, and the piece of its other steps. Span i has the pieces
    [at[i], to[i]), all but its opening step, and three rows of its own: P + i the opening gap,
    P + S + i its zeros, P + 2*S + i the gap to the request's next span.
    """

    request: IntArray
    at: IntArray
    to: IntArray
    first: IntArray
    slope: IntArray
    n: IntArray

    @classmethod
    def of(cls, runs: dict[str, IntArray], spans: dict[str, IntArray]) -> StepTable:
        """Read the columns documented in ``facts.gaps.GapRuns``."""
        decodes = runs["batch"] > 0
        start, first, slope, n = (runs[c][decodes] for c in ("start", "first", "slope", "n"))
        end = start + n * first + slope * (n * (n - 1) // 2)
        pieces, where = _pieces(start, first, slope, n, end)

        position = np.concatenate([[0], np.cumsum(decodes)])  # of a run among those with decodes
        at, to = position[spans["run_from"]], position[spans["run_to"]]
        stepped = to > at
        token_time = spans["token_time"]
        opening, last_token = np.zeros_like(token_time), token_time.copy()
        opening[stepped] = (start + first)[at[stepped]] - token_time[stepped]
        last_token[stepped] = end[to[stepped] - 1]
        follows = np.zeros(token_time.size, dtype=bool)
        follows[:-1] = np.diff(spans["request"]) == 0
        # A bridge of no ticks is no gap: a decode that got no token in a run goes on after it.
        follows[:-1] &= token_time[1:] != last_token[:-1]
        bridge = np.zeros_like(token_time)
        bridge[:-1] = np.where(follows[:-1], token_time[1:] - last_token[:-1], 0)

        own = np.zeros(3 * token_time.size, dtype=np.int64)
        return cls(
            request=spans["request"],
            at=where[at] + stepped,
            to=where[to],
            first=np.concatenate([pieces[0], opening, np.zeros_like(token_time), bridge]),
            slope=np.concatenate([pieces[1], own]),
            n=np.concatenate([pieces[2], stepped, spans["zeros"], follows]).astype(np.int64),
        )

    @property
    def _shared(self) -> int:
        return self.n.size - 3 * self.request.size

    def counts(self, requests: int) -> IntArray:
        """Number of gaps of each request, int64[requests]."""
        steps = np.concatenate([[0], np.cumsum(self.n[: self._shared])])
        own = self.n[self._shared :].reshape(3, -1).sum(axis=0)
        by_span = steps[self.to] - steps[self.at] + own
        return np.bincount(self.request, weights=by_span, minlength=requests).astype(np.int64)

    def pooled(self) -> Progressions:
        """All gaps as one row: each shared piece counts once for every span that has it."""
        ends = np.bincount(self.at, minlength=self._shared + 1)
        ends -= np.bincount(self.to, minlength=self._shared + 1)
        weight = np.ones_like(self.n)
        weight[: self._shared] = np.cumsum(ends)[:-1]
        has = (self.n > 0) & (weight > 0)
        columns = (column[has] for column in (self.first, self.slope, self.n, weight))
        return Progressions(np.zeros(int(has.sum()), dtype=np.int64), *columns)

    def chunks(self) -> Iterator[tuple[IntArray, Progressions]]:
        """Whole requests at a time: (the request of each row, its gaps in order of time)."""
        size = self.to - self.at + 3
        reach = np.concatenate([[0], np.cumsum(size)])
        start, end = 0, self.request.size
        while start < end:
            stop = int(np.searchsorted(reach, reach[start] + CHUNK, side="right")) - 1
            if stop < end:  # back to a request's first span; a longer request goes alone
                stop = int(np.searchsorted(self.request, self.request[stop]))
                stop = max(stop, int(np.searchsorted(self.request, self.request[start], "right")))
            chunk = self._gaps(np.arange(start, stop), size[start:stop])
            if chunk is not None:
                yield chunk
            start = stop

    def _gaps(self, spans: IntArray, size: IntArray) -> tuple[IntArray, Progressions] | None:
        stop = np.cumsum(size)
        table = np.arange(stop[-1]) - np.repeat(stop - size - self.at[spans] + 1, size)
        table[stop - size] = self._shared + spans
        table[stop - 2] = self._shared + self.request.size + spans
        table[stop - 1] = self._shared + 2 * self.request.size + spans
        has = self.n[table] > 0
        table = table[has]
        if not table.size:
            return None
        request = np.repeat(self.request[spans], size)[has]
        changes = np.diff(request, prepend=request[0]) != 0
        row = np.cumsum(changes, dtype=np.int64)
        requests = request[np.concatenate([[0], np.flatnonzero(changes)])]
        columns = (self.first[table], self.slope[table], self.n[table], np.ones_like(row))
        return requests, Progressions(row, *columns)


def _pieces(
    start: IntArray, first: IntArray, slope: IntArray, n: IntArray, end: IntArray
) -> tuple[tuple[IntArray, IntArray, IntArray], IntArray]:
    """Cut runs into first step and other steps: (first, slope, n) and each run's first piece."""
    pause = np.zeros_like(start)
    pause[1:] = start[1:] - end[:-1]  # nonsense from one instance to the next: no span refers to it
    size = 1 + (n > 1)
    where = np.concatenate([[0], np.cumsum(size)])
    run = np.repeat(np.arange(n.size), size)
    rest = np.ones(run.size, dtype=bool)
    rest[where[:-1]] = False
    columns = (
        np.where(rest, first[run] + slope[run], first[run] + pause[run]),
        np.where(rest, slope[run], 0),
        np.where(rest, n[run] - 1, 1),
    )
    return columns, where
