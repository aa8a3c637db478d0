"""Shares of requests within their limits: the TTFT limit, and the gap limit mixed or split."""

import math
from typing import Any

from minilab.judge.selector.pool import Load
from minilab.judge.selector.step import Step


def tail(limit: float, own: float, wait: float, rho: float) -> float:
    """Share of requests whose wait fits into ``limit`` - ``own``: P(wait > x) = rho exp(-x/w)."""
    left = limit - own
    if left < 0.0:
        return 0.0
    if rho <= 0.0 or wait <= 0.0:
        return 1.0
    return 1.0 - rho * math.exp(-left * rho / wait)


def first_share(settings: Any, step: Step, load: Load, run: Any) -> float:
    """Share of requests within the TTFT limit, over the lengths that a prompt may have."""
    lengths = settings.prompt_lengths()
    good = 0.0
    for length in lengths:
        own = run.own * max(1.0, length - load.cached) / load.new
        left = settings.ttft - step.overhead - 0.5 * run.step
        good += tail(left, own, run.wait, run.rho)
    return good / len(lengths)


def gap_share(settings: Any, load: Load, run: Any) -> float:
    """Share of requests whose p99 gap is within the limit.

    A gap is a step, and prompts that arrive during one step make the next one longer. How many may
    join before a step breaks the limit says how often it is broken (Poisson arrivals); of g gaps a
    hundredth may be. A step that emits several tokens is one gap and zeros: they count among the g.
    """
    if run.step > settings.itl:
        return 0.0
    steps = load.output / load.emitted
    if run.stall > settings.itl:  # even one chunk is too long
        broken = load.rate * run.step / (1.0 - run.busy) * run.chunks
    else:
        each = run.own - run.chunks * run.step
        join = (settings.itl - run.step) / each if each > 0 else math.inf
        if join * load.new >= run.room:
            return 1.0  # the budget is spent before the limit is
        broken = 1.0 - poisson(load.rate * run.step / (1.0 - run.busy), int(join))
    return poisson(steps * broken, int(min(60.0, load.output / 100.0)))


def poisson(mean: float, most: int) -> float:
    """P(N <= most) for a Poisson count."""
    term = total = math.exp(-mean)
    for count in range(1, most + 1):
        term *= mean / count
        total += term
    return min(1.0, total)


def transfer_share(settings: Any, load: Load, rest: Any, moved: float, wire: float) -> float:
    """The same after a split: the only long gap is the second token's, which waits for the KV."""
    if rest.step > settings.itl:
        return 0.0
    if load.output > 100.0:
        return 1.0
    # The KV waits for the step under way to end, then the token takes a step of its own.
    spare = settings.itl - moved - wire * moved / (2.0 * (1.0 - wire)) - rest.step
    return float(max(0.0, min(1.0, spare / rest.step)))
