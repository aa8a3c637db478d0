"""Lengths: mean and tail of prompt lengths, and the acceptance behind a number of accepted drafts.

What a server or a log tells, in the terms of the selector's parameters. Runs in the page too.
"""

import math
from typing import Any


def spread(values: list[float]) -> float:
    """Standard deviation over mean; 0 for none."""
    mean = sum(values) / len(values) if values else 0.0
    if mean <= 0.0:
        return 0.0
    square = sum([(value - mean) * (value - mean) for value in values]) / len(values)
    return math.sqrt(square) / mean


def spread_of_buckets(histogram: Any) -> float:
    """The same from a histogram: every observation in the middle of its bucket, those of the open
    one at their own mean. Equal lengths come out as 0 only up to the width of a bucket."""
    parts, low, below = [], 0.0, 0.0
    for bound, upto in histogram.points:
        middle = histogram.open_mean() if bound == math.inf else (low + bound) / 2.0
        parts.append((middle, upto - below))
        low, below = bound, upto
    count = sum([part for _, part in parts])
    mean = sum([middle * part for middle, part in parts]) / count if count > 0 else 0.0
    if mean <= 0.0:
        return 0.0
    square = sum([(middle - mean) * (middle - mean) * part for middle, part in parts]) / count
    return math.sqrt(square) / mean


def acceptance_of(accepted: float, drafts: float) -> float:
    """The chance a that a draft token is accepted, given those before it: a + a^2 + ... + a^k is
    the mean number of accepted tokens of a step with k = ``drafts``."""
    whole = max(1, int(drafts + 0.5))
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        total = term = middle
        for _ in range(whole - 1):
            term *= middle
            total += term
        if total < accepted:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
