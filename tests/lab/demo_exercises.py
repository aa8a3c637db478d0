"""Lab 90, which no course has: three small exercises for the tests of the framework."""

from __future__ import annotations

import math
import random

import numpy as np

from minilab.lab.exercise import Case, Exercise, Misconception

NAN = math.nan


def attainment(ttft: list[float], slo: float) -> float:
    """Share of requests whose TTFT is within the SLO; NaN is a request that failed."""
    return sum(value <= slo for value in ttft) / len(ttft)


def _served(ttft: list[float]) -> list[float]:
    return [value for value in ttft if not math.isnan(value)]


def _draw(rng: random.Random) -> Case:
    return Case(([round(rng.uniform(0.1, 2.1), 3) for _ in range(rng.randint(7, 23))], 0.77))


def p99(gaps: list[float]) -> float:
    """Linear 99th percentile of the gaps, in seconds."""
    return float(np.percentile(gaps, 99))


def _gaps(rng: random.Random) -> Case:
    return Case(([round(rng.lognormvariate(-4, 1), 6) for _ in range(rng.randint(9, 40))],))


EXERCISES = (
    Exercise(
        "90.1",
        "The share of good requests",
        attainment,
        cases=(
            Case(([0.2, 0.4, 0.9, 0.3, 1.4, 0.1, 0.6], 0.5), name="two are late, one nearly"),
            Case(([0.5, 0.5, 0.8], 0.5), name="two exactly at the limit"),
            Case(([0.3, NAN, 0.6, NAN, 0.2, 0.9, 1.1], 0.5), name="two failed"),
        ),
        misconceptions=(
            Misconception(
                "failed left out",
                lambda ttft, slo: sum(v <= slo for v in ttft) / len(_served(ttft)),
                "failed requests stay in the denominator: a user who got nothing is not served",
            ),
            Misconception(
                "count for share",
                lambda ttft, slo: sum(v <= slo for v in ttft),
                "a count of good requests, not their share of all",
            ),
            Misconception(
                "bad for good",
                lambda ttft, slo: 1 - sum(v <= slo for v in ttft) / len(ttft),
                "this is the share that missed the SLO",
            ),
            Misconception(
                "limit excluded",
                lambda ttft, slo: sum(v < slo for v in ttft) / len(ttft),
                "a request exactly at the limit meets the SLO",
            ),
            Misconception(
                "mean against the SLO",
                lambda ttft, slo: float(np.nanmean(ttft) <= slo),
                "the mean is judged, not each request: an SLO is a promise to every user",
            ),
        ),
        hints=("Judge each request by itself.", "What is NaN <= 1?", "Divide by all requests."),
        draw=_draw,
        unit="fraction",
        seconds=0.3,
    ),
    Exercise(
        "90.2",
        "The 99th percentile of the gaps",
        p99,
        cases=lambda: (Case(([0.02] * 95 + [0.31, 0.33, 0.37, 0.41, 0.53],), name="a long tail"),),
        misconceptions=(
            Misconception("mean", lambda gaps: float(np.mean(gaps)), "the mean hides the tail"),
            Misconception("max", lambda gaps: max(gaps), "the largest gap is the stall, not p99"),
        ),
        hints=("numpy has a function for it.",),
        draw=_gaps,
        unit="s",
    ),
    Exercise(
        "90.3",
        "The signal that alarms first",
        lambda: "queue time",
        cases=(Case(),),
        misconceptions=(
            Misconception("busy", lambda: "busy share", "busy is full long before users wait"),
        ),
        hints=("Which one still rises when the GPU is full?",),
    ),
    Exercise(
        "90.D1",
        "How many blocks",
        lambda tokens, block_size: -(-tokens // block_size),
        cases=(Case((33, 16)), Case((32, 16)), Case((5, 16))),
        hints=("Round up.",),
        core=False,
    ),
)
