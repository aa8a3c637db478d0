"""From the gaps between chunks of a stream, which clients measure, to gaps between tokens.

A stream's chunk is not a token: it may carry several (a slow client, a busy network, speculation)
or none (the role at the start of a chat, a stop reason at its end).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minilab.facts.arrays import BoolArray, FloatArray, IntArray
from minilab.facts.gaps import GapLists

MAX_GAPS = 200_000_000
"""Gaps in one file (1.6 GB of memory)."""


def token_gaps(
    rows: Sequence[FloatArray],
    tokens: IntArray,
    finished: BoolArray,
    first_shares: bool = False,
) -> tuple[GapLists | None, dict[str, Any]]:
    """Gaps of each request's tokens from those of its chunks, and what had to be done for it.

    ``rows``: seconds between chunks, R arrays; ``tokens``: int64[R] output tokens; ``finished``:
    bool[R]. Fewer gaps than tokens - 1: tokens shared a chunk, and for each there is a gap of 0 at
    the end of the list, because which chunk held it is not recorded (at its start where only the
    first chunk can have: ``first_shares``). More: chunks without a token, whose gaps (the smallest)
    are added to the next one, so that the sum stays. Requests that did not finish have no gaps:
    what came before they failed is not said.

    None if no request of several tokens has a gap at all: then the answers were not streamed.
    """
    wanted = np.where(finished, np.maximum(tokens - 1, 0), 0)
    found = np.array([row.size for row in rows], dtype=np.int64)
    if (wanted > 0).any() and not found[wanted > 0].any():
        return None, {"streamed": False}
    offsets = np.concatenate([[0], np.cumsum(wanted)]).astype(np.int64)
    values = np.zeros(int(offsets[-1]))
    for r, row in enumerate(rows):
        here = _merged(row, int(wanted[r]))
        begin = offsets[r + 1] - here.size if first_shares else offsets[r]
        values[begin : begin + here.size] = here
    short, long = (found < wanted) & finished, (found > wanted) & (wanted > 0)
    notes = {
        "streamed": True,
        "requests_with_shared_chunks": int(short.sum()),
        "zeros_added": int((wanted - found)[short].sum()),
        "requests_with_empty_chunks": int(long.sum()),
        "chunks_merged": int((found - wanted)[long].sum()),
        "zeros_placed": first_shares or not short.any(),
    }
    return GapLists(values, offsets), notes


def _merged(row: FloatArray, wanted: int) -> FloatArray:
    """``row`` with its smallest gaps added to the one after, until ``wanted`` are left."""
    if row.size <= wanted:
        return row
    if not wanted:
        return row[:0]
    kept = np.sort(np.argsort(row, kind="stable")[row.size - wanted :])
    starts = np.concatenate([[0], kept[:-1] + 1])
    return np.asarray(np.add.reduceat(row, starts), dtype=np.float64)


def unsmoothed(row: FloatArray) -> FloatArray:
    """The gaps of chunks whose time was spread evenly over their tokens: one gap, then zeros.

    k equal values in a row were one chunk of k tokens. Only clock readings count as equal: a number
    of at most nine digits was typed by somebody, and stays.
    """
    same = np.diff(row) == 0
    for i in np.flatnonzero(same).tolist():
        same[i] = float(f"{row[i]:.9g}") != row[i]
    if not same.any():
        return row
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    length = np.diff(np.concatenate([first, [row.size]]))
    out = np.zeros(row.size)
    out[first] = row[first] * length
    return out
