"""Play a workload on an engine, request by request when it is due, and read figures off the log.

Requests are queued when they are due; where the engine is in the middle of a step they wait for its
end, as they would in a server. What the log shows is then the same experiment as the simulator's,
with real steps in place of a cost model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minilab.facts.errors import InputError
from minilab.facts.prompt_tokens import prompt_tokens
from minilab.facts.runlog import RunLog
from minilab.facts.slo import metric
from minilab.facts.ticks import TICKS_PER_SECOND
from minilab.facts.workload import Workload
from minilab.judge.engine_clock import Clock, WallClock


def play(
    llm: Any,
    work: Workload,
    rules: Callable[[int], Any],
    seed: int = 0,
    tell: Callable[[str], None] | None = None,
    clock: Clock | None = None,
) -> RunLog:
    """The run log of ``work`` on ``llm`` (an ``engine.llm.LLM`` with nothing to do).

    ``rules``: from a number of output tokens to sampling parameters. ``clock``: real time, if not
    given; an engine that is played on again needs the same one.

    Raises:
        InputError: requests that wait for others (sessions, closed loops): arrivals must be known.
    """
    if work.concurrency is not None or any(r.after is not None for r in work.requests):
        raise InputError(f"{work.name}: has requests that wait for others; use one with arrivals")
    vocabulary = int(llm.executor.model.config.vocab_size)
    prompts = [prompt_tokens(request, vocabulary, seed) for request in work.requests]
    for request, prompt in zip(work.requests, prompts, strict=True):
        llm.check(prompt, rules(request.output_tokens))
    clock = clock or WallClock()
    llm.record.clock = lambda: round(clock.now() * 1e9)
    start = llm.record.now() / TICKS_PER_SECOND
    begin = clock.now()
    told = time.monotonic()
    due = [begin + request.arrival for request in work.requests]
    states: list[Any] = []
    while True:
        now = clock.now()
        while len(states) < len(due) and due[len(states)] <= now:
            request = work.requests[len(states)]
            rule = rules(request.output_tokens)
            states.append(llm.add(prompts[request.id], rule, request.cache_salt))
        if tell is not None and time.monotonic() - told > 5:
            told = time.monotonic()
            running = llm.scheduler.num_running
            tell(f"{len(states)} of {len(prompts)} requests sent, {running} running")
        if llm.step():
            continue
        if len(states) == len(prompts):
            break
        clock.sleep(max(0.0, due[len(states)] - clock.now()))
    for state in states:
        llm.output(state)
    log = llm.record.to_runlog(seed=seed, workload_hash=work.hash(), data=work.source)
    return _as_due(log, work, states[0].id, start)


def _as_due(log: RunLog, work: Workload, first: int, start: float) -> RunLog:
    """The requests from id ``first`` on, each arriving when it was due and not when it was seen."""
    mine = log.select(log.requests["id"] >= first)
    mine.requests["arrival"][:] = [start + request.arrival for request in work.requests]
    mine.requests["queue"][:] = mine.requests["scheduled"] - mine.requests["arrival"]
    return mine.check()


def figures(log: RunLog) -> dict[str, float]:
    """TTFT p50 and p90, gaps between tokens (all requests pooled: "itl" in vLLM's words) p50 and
    p99, and each request's own p99 gap at p50: seconds.
    """
    ttft, own = metric(log, "ttft"), metric(log, "itl")
    if ttft is None or own is None or log.gaps is None:
        raise InputError("the log has no token times; nothing can be compared")
    p50, p99 = log.gaps.pooled_quantiles([0.5, 0.99]).tolist()
    return {
        "ttft p50": float(np.nanquantile(ttft, 0.5)),
        "ttft p90": float(np.nanquantile(ttft, 0.9)),
        "itl p50": p50,
        "itl p99": p99,
        "own itl p50": float(np.nanquantile(own, 0.5)),
    }
