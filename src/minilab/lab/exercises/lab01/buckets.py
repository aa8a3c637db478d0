"""Exercise 1.1: p99 of TTFT by prompt length."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minilab.lab.exercise import Case, Exercise, Misconception


def p99_by_bucket(
    prompt_tokens: Sequence[int], ttft: Sequence[float], edges: Sequence[int]
) -> list[float | None]:
    """p99 of TTFT in the buckets [edges[i], edges[i+1]); None for an empty one."""
    return _by_bucket(lambda values: float(np.percentile(values, 99)), prompt_tokens, ttft, edges)


def _by_bucket(
    statistic: Callable[[Any], float],
    prompt_tokens: Sequence[int],
    ttft: Sequence[float],
    edges: Sequence[int],
    upper: bool = False,
) -> list[float | None]:
    length, value = np.asarray(prompt_tokens), np.asarray(ttft)
    out: list[float | None] = []
    for low, high in pairwise(edges):
        inside = (length > low) & (length <= high) if upper else (length >= low) & (length < high)
        out.append(statistic(value[inside]) if inside.any() else None)
    return out


def _bucket_case(rng: random.Random) -> Case:
    edges = [0, 256, 1024, 4096]
    count = rng.randint(30, 90)
    lengths = [rng.choice([256, 1024, rng.randint(1, 4095)]) for _ in range(count)]
    times = [round(0.02 + n / 40_000 + rng.expovariate(9), 4) for n in lengths]
    return Case((lengths, times, edges))


BUCKETS = Exercise(
    "1.1",
    "p99 of TTFT by prompt length",
    p99_by_bucket,
    cases=(
        Case(
            (
                [100, 200, 150, 900, 1000, 3000, 3500, 2000],
                [0.05, 0.06, 0.31, 0.08, 0.09, 0.22, 0.9, 0.18],
                [0, 256, 1024, 4096],
            ),
            name="three buckets, one slow request in two of them",
        ),
        Case(
            ([256, 256, 255, 700], [0.1, 0.3, 0.2, 0.4], [0, 256, 512, 1024]),
            name="lengths exactly on an edge",
        ),
        Case(([10, 5000], [0.04, 0.5], [0, 100, 1000, 8000]), name="an empty bucket"),
    ),
    misconceptions=(
        Misconception(
            "mean",
            lambda p, t, e: _by_bucket(lambda v: float(np.mean(v)), p, t, e),
            "this is the mean of each bucket: a mean hides the users who waited longest",
        ),
        Misconception(
            "median",
            lambda p, t, e: _by_bucket(lambda v: float(np.median(v)), p, t, e),
            "this is the median: half of the users fare worse than it says",
        ),
        Misconception(
            "p90",
            lambda p, t, e: _by_bucket(lambda v: float(np.percentile(v, 90)), p, t, e),
            "this is the 90th percentile; look at the number you gave to the function",
        ),
        Misconception(
            "maximum",
            lambda p, t, e: _by_bucket(lambda v: float(np.max(v)), p, t, e),
            "this is the slowest request of each bucket: one outlier would decide everything",
        ),
        Misconception(
            "upper edge belongs to the lower bucket",
            lambda p, t, e: _by_bucket(lambda v: float(np.percentile(v, 99)), p, t, e, upper=True),
            "a prompt exactly on an edge belongs to the bucket that begins there",
        ),
        Misconception(
            "all requests in every bucket",
            lambda p, t, e: [float(np.percentile(t, 99))] * (len(e) - 1),
            "every bucket got the percentile of all requests: the mask is not applied",
        ),
        Misconception(
            "swapped columns",
            lambda p, t, e: _by_bucket(lambda v: float(np.percentile(v, 99)), t, p, e),
            "lengths and times have changed places",
        ),
    ),
    hints=(
        "Build a mask for each bucket: the lower edge belongs to it, the upper one does not.",
        "numpy.percentile takes the values and the percentile as a number from 0 to 100.",
        "An empty mask has no percentile: mask.any() tells you before numpy complains.",
    ),
    draw=_bucket_case,
    unit="s",
)
