"""Lab 01, goodput: from latencies to good requests, from good requests to the knee."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minilab.lab.exercise import Case, Exercise, Misconception

NAN = math.nan

# -- 1.1 p99 by prompt length ------------------------------------------------------------------------


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
    for low, high in zip(edges[:-1], edges[1:], strict=True):
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
            lambda p, t, e: _by_bucket(
                lambda v: float(np.percentile(v, 99)), p, t, e, upper=True
            ),
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

# -- 1.2 the ITL of one request -----------------------------------------------------------------------


def itl_p99(token_times: Sequence[float]) -> float | None:
    """p99 of the gaps between a request's own tokens; None for fewer than two tokens."""
    gaps = np.diff(token_times)
    return float(np.percentile(gaps, 99)) if len(gaps) else None


def _gap_statistic(function: Callable[[Any], float]) -> Callable[[Sequence[float]], float | None]:
    def of(token_times: Sequence[float]) -> float | None:
        gaps = np.diff(token_times)
        return float(function(gaps)) if len(gaps) else None

    return of


def _token_times(rng: random.Random) -> Case:
    now, times = rng.uniform(1, 50), []
    for _ in range(rng.randint(20, 220)):
        times.append(round(now, 6))
        now += 0.3 if rng.random() < 0.03 else rng.uniform(0.008, 0.02)
    return Case((times,))


ITL = Exercise(
    "1.2",
    "The p99 gap of one request",
    itl_p99,
    cases=(
        Case(
            ([10.0 + 0.01 * i for i in range(40)] + [10.75 + 0.01 * i for i in range(40)],),
            name="a steady stream with one stall in the middle",
        ),
        Case(([5.0, 5.2, 5.21, 5.24],), name="four tokens"),
        Case(([7.5],), name="a single token"),
    ),
    misconceptions=(
        Misconception(
            "tpot",
            lambda t: (t[-1] - t[0]) / (len(t) - 1) if len(t) > 1 else None,
            "this is TPOT, the mean gap: a stall of half a second vanishes in a long answer",
        ),
        Misconception(
            "stall",
            _gap_statistic(np.max),
            "this is the largest gap, which the course calls the stall; p99 forgives one in a "
            "hundred",
        ),
        Misconception(
            "divided by tokens",
            lambda t: (t[-1] - t[0]) / len(t) if len(t) > 1 else None,
            "n tokens have n - 1 gaps between them; and a mean is not a tail",
        ),
        Misconception(
            "median gap",
            _gap_statistic(np.median),
            "this is the median gap: a reader notices the slow ones",
        ),
        Misconception(
            "milliseconds",
            lambda t: 1e3 * float(np.percentile(np.diff(t), 99)) if len(t) > 1 else None,
            "this is in milliseconds; times in this course are seconds",
        ),
        Misconception(
            "percentile of the times",
            lambda t: float(np.percentile(t, 99)) - t[0] if len(t) > 1 else None,
            "this is a percentile of the moments, not of the gaps between them",
        ),
        Misconception(
            "single token as zero",
            lambda t: float(np.percentile(np.diff(t), 99)) if len(t) > 1 else 0.0,
            "a single token has no gap: unavailable is None, and never zero",
        ),
    ),
    hints=(
        "The gaps are the differences of neighbouring times.",
        "numpy.diff gives n - 1 differences of n times.",
        "Think of a request with one token before you call the percentile.",
    ),
    draw=_token_times,
    unit="s",
)

# -- 1.3 goodput --------------------------------------------------------------------------------------

Row = dict[str, Any]


def goodput(
    requests: Sequence[Row], ttft_slo: float, itl_slo: float, duration: float
) -> float:
    """Good requests per second: finished, TTFT and ITL both within their limits."""
    return sum(_good(r, ttft_slo, itl_slo) for r in requests) / duration


def _good(r: Row, ttft_slo: float, itl_slo: float) -> bool:
    gap_ok = r["itl"] is None or r["itl"] <= itl_slo
    return bool(r["finished"] and r["ttft"] <= ttft_slo and gap_ok)


def _row(ttft: float, itl: float | None, tokens: int, finished: bool = True) -> Row:
    return {"ttft": ttft, "itl": itl, "output_tokens": tokens, "finished": finished}


def _finished(rows: Sequence[Row]) -> list[Row]:
    return [r for r in rows if r["finished"]]


def _rows(rng: random.Random) -> Case:
    rows = []
    for _ in range(rng.randint(15, 40)):
        tokens = rng.choice([1, rng.randint(2, 300)])
        itl = None if tokens == 1 else round(rng.uniform(0.01, 0.08), 4)
        rows.append(_row(round(rng.uniform(0.05, 0.9), 3), itl, tokens, rng.random() > 0.15))
    rows[0]["ttft"], rows[0]["itl"] = 0.5, 0.05
    return Case((rows, 0.5, 0.05, rng.choice([7.0, 13.0, 29.0])))


GOODPUT = Exercise(
    "1.3",
    "Goodput of a list of requests",
    goodput,
    cases=(
        Case(
            (
                [
                    _row(0.2, 0.03, 120),
                    _row(0.4, 0.09, 80),
                    _row(0.7, 0.02, 60),
                    _row(0.1, 0.04, 200, finished=False),
                    _row(0.3, None, 1),
                    _row(0.5, 0.05, 40),
                ],
                0.5,
                0.05,
                4.0,
            ),
            name="a stall, a late start, a failure, a one-token answer, one exactly on both limits",
        ),
        Case(([_row(0.9, 0.2, 50)] * 3, 0.5, 0.05, 2.0), name="nobody is served well"),
    ),
    misconceptions=(
        Misconception(
            "failed requests count",
            lambda rows, t, i, d: sum(
                r["ttft"] <= t and (r["itl"] is None or r["itl"] <= i) for r in rows
            ) / d,
            "a request that failed was counted as good because it began well",
        ),
        Misconception(
            "share",
            lambda rows, t, i, d: sum(_good(r, t, i) for r in rows) / len(rows),
            "this is attainment, the share of good requests; goodput is a rate, per second",
        ),
        Misconception(
            "share of the finished",
            lambda rows, t, i, d: (
                sum(_good(r, t, i) for r in rows) / max(1, len(_finished(rows)))
            ),
            "this is a share, and only of those that finished: failures vanish from it",
        ),
        Misconception(
            "either limit",
            lambda rows, t, i, d: sum(
                r["finished"] and (r["ttft"] <= t or r["itl"] is None or r["itl"] <= i)
                for r in rows
            ) / d,
            "one limit was enough here; a good request keeps every promise at once",
        ),
        Misconception(
            "throughput",
            lambda rows, t, i, d: len(_finished(rows)) / d,
            "this is throughput: every finished request counted, good or not",
        ),
        Misconception(
            "tokens per second",
            lambda rows, t, i, d: (
                sum(r["output_tokens"] for r in rows if _good(r, t, i)) / d
            ),
            "tokens were counted; the unit of goodput is requests",
        ),
        Misconception(
            "one-token answers dropped",
            lambda rows, t, i, d: sum(
                _good(r, t, i) and r["itl"] is not None for r in rows
            ) / d,
            "an answer of one token has no gap, so it cannot break a gap limit: it passes",
        ),
        Misconception(
            "limit excluded",
            lambda rows, t, i, d: sum(
                r["finished"] and r["ttft"] < t and (r["itl"] is None or r["itl"] < i)
                for r in rows
            ) / d,
            "a request exactly on the limit meets the SLO",
        ),
        Misconception(
            "TTFT alone",
            lambda rows, t, i, d: sum(r["finished"] and r["ttft"] <= t for r in rows) / d,
            "only the first token was judged: a stream that stutters is not good",
        ),
    ),
    hints=(
        "Write the rule for one request first; it has three conditions.",
        "None as ITL means there was no gap to judge.",
        "Count the good ones among all requests, then divide by the duration.",
    ),
    draw=_rows,
    unit="1/s",
)

# -- 1.4 the knee -------------------------------------------------------------------------------------


def knee(
    attainment: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    """The highest rate known to attain the target after ``steps`` halvings of [low, high]."""
    for _ in range(steps):
        middle = (low + high) / 2
        if attainment(middle) >= target:
            low = middle
        else:
            high = middle
    return low


def _upper(f: Callable[[float], float], low: float, high: float, target: float, steps: int) -> float:
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) >= target else (low, middle)
    return high


def _flipped(
    f: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if f(middle) >= target else (middle, high)
    return low


def _best_product(
    f: Callable[[float], float], low: float, high: float, target: float, steps: int
) -> float:
    rates = np.linspace(low, high, steps + 1)
    return float(max(rates, key=lambda rate: rate * f(float(rate))))


class Curve:
    """Attainment that falls around ``centre``; shown by name in messages."""

    def __init__(self, centre: float, width: float) -> None:
        self.centre, self.width = centre, width

    def __call__(self, rate: float) -> float:
        return 1 / (1 + math.exp((rate - self.centre) / self.width))

    def __repr__(self) -> str:
        return f"a curve that falls near {self.centre:g} requests/s"


KNEE = Exercise(
    "1.4",
    "The knee by bisection",
    knee,
    cases=(
        Case((Curve(9.0, 0.5), 1.0, 16.0, 0.9, 6), name="six halvings"),
        Case((Curve(30.0, 0.5), 1.0, 16.0, 0.9, 5), name="the target is met everywhere"),
        Case((Curve(5.0, 1.5), 2.0, 12.0, 0.99, 1), name="one halving"),
    ),
    misconceptions=(
        Misconception(
            "the failing end",
            _upper,
            "this end of the interval missed the target: a capacity you promise must be one you saw",
        ),
        Misconception(
            "flipped halves",
            _flipped,
            "the halves are swapped: when the middle is good enough, the knee lies above it",
        ),
        Misconception(
            "the middle",
            lambda f, low, high, target, steps: (
                knee(f, low, high, target, steps) + _upper(f, low, high, target, steps)
            ) / 2,
            "this is the middle of what is left, a rate at which nothing was measured",
        ),
        Misconception(
            "one halving too few",
            lambda f, low, high, target, steps: knee(f, low, high, target, max(0, steps - 1)),
            "one halving is missing",
        ),
        Misconception(
            "best goodput",
            _best_product,
            "this maximises good requests per second and lets the share of good ones fall; the "
            "knee keeps the promised share",
        ),
    ),
    hints=(
        "Keep two rates: one that is known to hold, one that is known to fail.",
        "Look at the middle, and move the end that it proves wrong.",
        "After the last halving, return the rate that was seen to hold.",
    ),
    draw=lambda rng: Case(
        (
            Curve(round(rng.uniform(3, 14), 2), round(rng.uniform(0.2, 1.5), 2)),
            1.0,
            16.0,
            rng.choice([0.9, 0.95, 0.99]),
            rng.randint(3, 9),
        )
    ),
    unit="1/s",
)

# -- 1.D1 the losing budget -----------------------------------------------------------------------------


def largest_budget(
    itl_slo: float, decode_seconds: float, seconds_per_token: float, budgets: Sequence[int]
) -> int | None:
    """The largest token budget whose full step still keeps the gap limit; None if none does."""
    fits = [b for b in budgets if decode_seconds + b * seconds_per_token <= itl_slo]
    return max(fits) if fits else None


BUDGET = Exercise(
    "1.D1",
    "The largest budget that keeps the stream smooth",
    largest_budget,
    cases=(
        Case((0.05, 0.008, 1.7e-5, [512, 1024, 2048, 4096, 8192]), name="an H100 and an 8B model"),
        Case((0.01, 0.009, 1e-4, [512, 1024]), name="a limit that no budget keeps"),
        Case((0.1, 0.02, 8e-5, [8192, 256, 1000, 512]), name="budgets in no order, one exact"),
    ),
    misconceptions=(
        Misconception(
            "decode step forgotten",
            lambda s, d, f, b: max((x for x in b if x * f <= s), default=None),
            "the decodes share the step with the chunk: their own time is missing",
        ),
        Misconception(
            "smallest",
            lambda s, d, f, b: min((x for x in b if d + x * f <= s), default=None),
            "this is the smallest one that holds; it makes prompts wait without need",
        ),
        Misconception(
            "solved, not chosen",
            lambda s, d, f, b: (s - d) / f,
            "this solves the inequality; the answer must be one of the budgets on offer",
        ),
        Misconception(
            "last in the list",
            lambda s, d, f, b: next((x for x in reversed(b) if d + x * f <= s), None),
            "this takes the last one in the list; the list need not be in order",
        ),
    ),
    hints=(
        "The longest step holds a full chunk and every decode.",
        "Keep the budgets whose longest step is within the limit.",
    ),
    draw=lambda rng: Case(
        (
            round(rng.uniform(0.02, 0.2), 3),
            round(rng.uniform(0.004, 0.03), 4),
            rng.uniform(1e-5, 1e-4),
            rng.sample([256, 512, 1024, 2048, 4096, 8192, 16384], 5),
        )
    ),
    unit="tokens",
    core=False,
)

EXERCISES = (BUCKETS, ITL, GOODPUT, KNEE, BUDGET)
