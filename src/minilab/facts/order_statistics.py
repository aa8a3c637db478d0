"""Order statistics of integers that are given as arithmetic progressions, never written out.

A run of n decode steps whose lengths grow by a constant slope is one progression, so four million
gaps are some ten thousand rows. How many of a progression's terms are <= x has a closed form;
bisecting x over the integers therefore finds any order statistic exactly, for many rows at once.
No seconds here: integers in, integers out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minilab.facts.arrays import IntArray


class Progressions(NamedTuple):
    """Terms ``first + slope*k`` for k in [0, n), each counted ``weight`` times (int64[P] each).

    ``row`` says whose terms they are: sorted, and every row from 0 to row[-1] has at least one
    progression. n >= 1 and weight >= 1; the slope may have either sign.
    """

    row: IntArray
    first: IntArray
    slope: IntArray
    n: IntArray
    weight: IntArray

    @property
    def last(self) -> IntArray:
        """The term k = n - 1, int64[P]."""
        return self.first + self.slope * (self.n - 1)

    def rising(self) -> Progressions:
        """The same terms with every slope >= 0: a falling progression is read from its end."""
        if not self.slope.size or self.slope.min() >= 0:
            return self
        return self._replace(first=np.minimum(self.first, self.last), slope=np.abs(self.slope))

    def totals(self) -> IntArray:
        """How many terms each row has, int64[rows]."""
        return _sum_by_row(self.row, self.n * self.weight, _rows(self))


def neighbours(terms: Progressions, rank: IntArray) -> tuple[IntArray, IntArray]:
    """Each row's order statistics number ``rank`` and ``rank + 1``, counted from 0.

    Args:
        terms: the progressions.
        rank: int64[rows], 0 <= rank < the row's number of terms.

    Returns:
        Two int64[rows]; where ``rank`` is the last one, the second equals the first.
    """
    terms = terms.rising()
    value = _select(terms, rank)
    counts = _sum_by_row(terms.row, _count_up_to(terms, value[terms.row]), rank.size)
    follows = (counts <= rank + 1) & (rank + 1 < terms.totals())
    return value, np.where(follows, _successor(terms, value), value)


def maxima(terms: Progressions) -> IntArray:
    """The largest term of each row, int64[rows]."""
    return np.maximum.reduceat(np.maximum(terms.first, terms.last), _starts(terms.row))


def _rows(terms: Progressions) -> int:
    return int(terms.row[-1]) + 1 if terms.row.size else 0


def _starts(row: IntArray) -> NDArray[np.intp]:
    """Where each block of equal values begins."""
    return np.flatnonzero(np.diff(row, prepend=-1))


def _sum_by_row(row: IntArray, values: IntArray, rows: int) -> IntArray:
    # bincount adds in float64: exact below 2**53 terms
    return np.bincount(row, weights=values, minlength=rows).astype(np.int64)


def _count_up_to(terms: Progressions, x: IntArray) -> IntArray:
    """Terms <= x of each rising progression, weights included; x is int64[P]."""
    last = terms.last
    counts = np.where(last <= x, terms.n * terms.weight, 0)
    part = np.flatnonzero((terms.first <= x) & (x < last))  # few: only these need a division
    steps = (x[part] - terms.first[part]) // terms.slope[part] + 1
    counts[part] = steps * terms.weight[part]
    return counts


def _successor(terms: Progressions, value: IntArray) -> IntArray:
    """The smallest term above ``value`` in each row (the largest int64 where there is none)."""
    x = value[terms.row]
    above = np.where(terms.first > x, terms.first, np.iinfo(np.int64).max)
    part = np.flatnonzero((terms.first <= x) & (x < terms.last))
    first, slope = terms.first[part], terms.slope[part]
    above[part] = first + slope * ((x[part] - first) // slope + 1)
    return np.minimum.reduceat(above, _starts(terms.row))


def _select(terms: Progressions, rank: IntArray) -> IntArray:
    """Bisection of all rows at once: count(<= low) <= rank < count(<= high) holds throughout.

    A progression that lies wholly at or below ``low`` only adds its number of terms to ``passed``;
    one wholly above ``high`` adds nothing. Both are dropped, so a pass gets shorter as it narrows.
    """
    starts = _starts(terms.row)
    low = np.minimum.reduceat(terms.first, starts) - 1
    high = np.maximum.reduceat(terms.last, starts)
    passed = np.zeros(rank.size, dtype=np.int64)
    while terms.row.size:
        middle = low + (high - low) // 2
        x = middle[terms.row]
        counts = _count_up_to(terms, x)
        rises = passed + _sum_by_row(terms.row, counts, rank.size) <= rank
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
        rising = rises[terms.row]
        below = rising & (terms.last <= x)
        passed += _sum_by_row(terms.row[below], counts[below], rank.size)
        keep = np.where(rising, terms.last > x, terms.first <= x) & (high - low > 1)[terms.row]
        terms = Progressions(*(column[keep] for column in terms))
        _tighten(terms, low, high)
    return high


def _tighten(terms: Progressions, low: IntArray, high: IntArray) -> None:
    """Draw each row's bracket in to the terms still in play (equal terms then end at once)."""
    if not terms.row.size:
        return
    starts = _starts(terms.row)
    row = terms.row[starts]
    low[row] = np.maximum(low[row], np.minimum.reduceat(terms.first, starts) - 1)
    high[row] = np.minimum(high[row], np.maximum.reduceat(terms.last, starts))
