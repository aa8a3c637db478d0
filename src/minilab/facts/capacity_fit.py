"""A sequence's bytes as fixed + slope, from two or more sizes that an engine stated.

For a model whose cache nobody has modelled yet: engines say what they need for one length and how
long a sequence the memory they have would hold, and each is a point on the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minilab.facts.errors import InputError


class Affine(NamedTuple):
    """bytes(tokens) = fixed + slope * tokens; ``worst`` is the largest misfit in bytes."""

    fixed: float
    slope: float
    worst: float

    def tokens(self, avail_bytes: float, sequences: int = 1) -> int:
        """The longest sequence when ``sequences`` share ``avail_bytes``."""
        return max(0, int((avail_bytes / sequences - self.fixed) / self.slope))


def fit_affine(points: Sequence[tuple[float, float]]) -> Affine:
    """Least squares over (tokens, bytes). Raises InputError for fewer than two lengths."""
    if len({tokens for tokens, _ in points}) < 2:
        raise InputError("a line needs sizes at two lengths or more; give GIB:TOKENS,GIB:TOKENS")
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    if slope <= 0:
        raise InputError("more tokens take fewer bytes in these points; give GIB:TOKENS in order")
    fixed = mean_y - slope * mean_x
    return Affine(fixed, slope, max(abs(fixed + slope * x - y) for x, y in points))
