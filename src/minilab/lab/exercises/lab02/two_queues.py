"""Exercise 2.1: one queue becomes two."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minilab.lab.exercise import Case, Exercise, Misconception

Times = Sequence[float]


def two_queues(arrivals: Times, prefill: Times, transfer: Times, decode: Times) -> list[float]:
    """When each request ends: one prefill server, a wire of its own for each, one decode server."""
    prefill_free = decode_free = 0.0
    ends = []
    for arrival, p, t, d in zip(arrivals, prefill, transfer, decode, strict=True):
        prefill_free = max(arrival, prefill_free) + p
        decode_free = max(prefill_free + t, decode_free) + d
        ends.append(decode_free)
    return ends


def _one_queue(arrivals: Times, prefill: Times, transfer: Times, decode: Times) -> list[float]:
    free, ends = 0.0, []
    for arrival, p, t, d in zip(arrivals, prefill, transfer, decode, strict=True):
        free = max(arrival, free) + p + t + d
        ends.append(free)
    return ends


def _no_waiting(arrivals: Times, prefill: Times, transfer: Times, decode: Times) -> list[float]:
    return [a + p + t + d for a, p, t, d in zip(arrivals, prefill, transfer, decode, strict=True)]


def _wire_holds(arrivals: Times, prefill: Times, transfer: Times, decode: Times) -> list[float]:
    prefill_free = decode_free = 0.0
    ends = []
    for arrival, p, t, d in zip(arrivals, prefill, transfer, decode, strict=True):
        prefill_free = max(arrival, prefill_free) + p + t
        decode_free = max(prefill_free, decode_free) + d
        ends.append(decode_free)
    return ends


def _wire_after(arrivals: Times, prefill: Times, transfer: Times, decode: Times) -> list[float]:
    prefill_free = decode_free = 0.0
    ends = []
    for arrival, p, t, d in zip(arrivals, prefill, transfer, decode, strict=True):
        prefill_free = max(arrival, prefill_free) + p
        decode_free = max(prefill_free, decode_free) + t + d
        ends.append(decode_free)
    return ends


def _decode_never_waits(
    arrivals: Times, prefill: Times, transfer: Times, decode: Times
) -> list[float]:
    free, ends = 0.0, []
    for arrival, p, t, d in zip(arrivals, prefill, transfer, decode, strict=True):
        free = max(arrival, free) + p
        ends.append(free + t + d)
    return ends


def _draw(rng: random.Random) -> Case:
    count = rng.randint(5, 12)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(4.0)
        arrivals.append(round(now, 3))

    def some(low: float, high: float) -> list[float]:
        return [round(rng.uniform(low, high), 3) for _ in range(count)]

    return Case((arrivals, some(0.05, 0.4), some(0.01, 0.2), some(0.1, 0.5)))


TWO_QUEUES = Exercise(
    "2.1",
    "One queue becomes two",
    two_queues,
    cases=(
        Case(([0.0, 0.1, 0.2], [0.2] * 3, [0.05] * 3, [0.3] * 3), name="decode is the slower one"),
        Case(([0.0, 0.1, 0.2], [0.4] * 3, [0.1] * 3, [0.1] * 3), name="prefill is the slower one"),
        Case(([0.0, 5.0], [0.2, 0.2], [0.1, 0.1], [1.0, 1.0]), name="nobody meets anybody"),
        Case(([], [], [], []), name="no requests"),
    ),
    misconceptions=(
        Misconception(
            "one queue",
            _one_queue,
            "a request keeps both servers to its end: the next prompt may begin as soon as the "
            "prefill server is free",
        ),
        Misconception("no waiting", _no_waiting, "nobody waits here, yet each server takes one"),
        Misconception(
            "the wire holds the prefill server",
            _wire_holds,
            "the prefill server waits for the wire: it can compute the next prompt meanwhile",
        ),
        Misconception(
            "the wire holds the decode server",
            _wire_after,
            "the decode server is busy during the transfer: it can serve others meanwhile",
        ),
        Misconception(
            "decode never waits",
            _decode_never_waits,
            "the decode server takes one at a time too: a request may find it busy",
        ),
        Misconception(
            "transfer left out",
            lambda a, p, t, d: two_queues(a, p, [0.0] * len(t), d),
            "the KV has to arrive before decoding can begin",
        ),
    ),
    hints=(
        "Keep two times: when the prefill server is free, and when the decode server is.",
        "A prompt begins at the later of its arrival and the prefill server's free time.",
        "An answer begins at the later of its KV's arrival and the decode server's free time.",
    ),
    draw=_draw,
    unit="s",
)
