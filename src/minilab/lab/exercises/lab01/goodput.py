"""Exercise 1.3: goodput of a list of requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from minilab.lab.exercise import Case, Exercise, Misconception

Row = dict[str, Any]


def goodput(requests: Sequence[Row], ttft_slo: float, itl_slo: float, duration: float) -> float:
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
            lambda rows, t, i, d: (
                sum(r["ttft"] <= t and (r["itl"] is None or r["itl"] <= i) for r in rows) / d
            ),
            "a request that failed was counted as good because it began well",
        ),
        Misconception(
            "share",
            lambda rows, t, i, d: sum(_good(r, t, i) for r in rows) / len(rows),
            "this is attainment, the share of good requests; goodput is a rate, per second",
        ),
        Misconception(
            "share of the finished",
            lambda rows, t, i, d: sum(_good(r, t, i) for r in rows) / max(1, len(_finished(rows))),
            "this is a share, and only of those that finished: failures vanish from it",
        ),
        Misconception(
            "either limit",
            lambda rows, t, i, d: (
                sum(
                    r["finished"] and (r["ttft"] <= t or r["itl"] is None or r["itl"] <= i)
                    for r in rows
                )
                / d
            ),
            "one limit was enough here; a good request keeps every promise at once",
        ),
        Misconception(
            "throughput",
            lambda rows, t, i, d: len(_finished(rows)) / d,
            "this is throughput: every finished request counted, good or not",
        ),
        Misconception(
            "tokens per second",
            lambda rows, t, i, d: sum(r["output_tokens"] for r in rows if _good(r, t, i)) / d,
            "tokens were counted; the unit of goodput is requests",
        ),
        Misconception(
            "one-token answers dropped",
            lambda rows, t, i, d: sum(_good(r, t, i) and r["itl"] is not None for r in rows) / d,
            "an answer of one token has no gap, so it cannot break a gap limit: it passes",
        ),
        Misconception(
            "limit excluded",
            lambda rows, t, i, d: (
                sum(
                    r["finished"] and r["ttft"] < t and (r["itl"] is None or r["itl"] < i)
                    for r in rows
                )
                / d
            ),
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
