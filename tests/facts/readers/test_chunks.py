"""From chunks to tokens.

What these tests exist for: a time between chunks that gets lost or invented on the way.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilab.facts.readers.chunks import token_gaps, unsmoothed

gaps = st.floats(1e-6, 10)


@given(st.lists(st.tuples(st.lists(gaps, max_size=12), st.integers(0, 15)), max_size=6))
def test_the_time_stays(rows):
    """n tokens have n - 1 gaps, and they last as long as the chunks' (with two tokens or more)."""
    given_rows = [np.array(row, dtype=np.float64) for row, _ in rows]
    tokens = np.array([n for _, n in rows], dtype=np.int64)
    lists, _ = token_gaps(given_rows, tokens, np.ones(len(rows), dtype=bool))
    if lists is None:
        assert not any(len(row) for row, n in rows if n > 1)
        return
    assert lists.counts().tolist() == [max(n - 1, 0) for n in tokens]
    for r, (row, n) in enumerate(rows):
        if n > 1:
            assert lists.row(r).sum() == pytest.approx(sum(row))
            assert lists.row(r).max() >= max(row, default=0)


@given(st.lists(st.tuples(gaps, st.integers(1, 6)), min_size=1, max_size=8))
def test_spread_chunks_come_together(chunks):
    """k equal readings are one chunk; the largest gap is a chunk's, not a token's."""
    row = np.concatenate([np.full(k, gap / k) for gap, k in chunks])
    whole = unsmoothed(row)
    assert whole.size == row.size and whole.sum() == pytest.approx(row.sum())
    typed = [float(f"{gap / k:.9g}") == gap / k for gap, k in chunks]
    if not any(typed):
        assert whole.max() >= max(gap for gap, _ in chunks) * (1 - 1e-12)


def test_unfinished_requests_have_no_gaps():
    lists, notes = token_gaps(
        [np.array([0.1, 0.2]), np.array([0.3])],
        np.array([3, 2]),
        np.array([True, False]),
    )
    assert lists.counts().tolist() == [2, 0]
    assert notes["zeros_placed"] and notes["zeros_added"] == 0
