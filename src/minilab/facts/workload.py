"""Workload: the requests of one run in order of arrival, where they come from, and generators.

A workload is a value: what changes it (``limit``, ``speedup``) returns another one. It knows
nothing of servers; with ``concurrency`` and ``Request.after`` a client waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minilab.facts import arrivals as draw
from minilab.facts.arrivals import Length, check, describe, in_order, positive, turn, whole
from minilab.facts.errors import InputError
from minilab.facts.prefix_stats import Prompt
from minilab.facts.request import Request
from minilab.facts.request_columns import at_times, digest

Tokens = Length | int


def _source(name: str) -> dict[str, Any]:
    return {"name": name, "kind": "synthetic", "origin": "minilab.facts.workload", "sha256": None}


@dataclass(frozen=True)
class Workload:
    """Requests sorted by arrival, with ids 0..n-1.

    ``concurrency`` closes the loop: at most that many requests are outstanding, and a request is
    released at max(its arrival, the time a slot opens). ``source`` has name, kind ("real",
    "stand-in" or "synthetic"), origin and sha256 (of the file; None without one). ``chained``:
    block size (tokens) of a trace whose content ids name all text before a block as well.
    """

    requests: list[Request]
    concurrency: int | None = None
    seed: int | None = None
    source: dict[str, Any] = field(default_factory=lambda: _source("custom"))
    chained: int | None = None

    def limit(self, n: int | None) -> Workload:
        """The first n requests; all of them for None."""
        return self if n is None else replace(self, requests=self.requests[: whole("limit", n)])

    def with_arrivals(self, seconds: ArrayLike) -> Workload:
        """The same requests at other arrival times, float[n], ascending (seconds)."""
        times, n = np.asarray(seconds, np.float64).tolist(), len(self.requests)
        if len(times) != n:
            raise InputError(f"{len(times)} arrival times; {n} requests; give one for each")
        return replace(self, requests=at_times(self.requests, times)).validate()

    def speedup(self, x: float) -> Workload:
        """All arrival times divided by x; think times stay, for users do not hurry."""
        x = positive("speedup", x, "a factor, such as 10")
        times = (request.arrival / x for request in self.requests)
        return replace(self, requests=at_times(self.requests, times))

    def scaled_to_rate(self, rate: float) -> Workload:
        """Arrival times stretched or squeezed to ``rate`` requests per second of their span."""
        now = self.stats()["rate"]
        if now is None:
            raise InputError(f"{self.name}: all arrive at one time; no rate to scale; spread them")
        return self.speedup(positive("rate", rate, "requests per second") / now)

    def stats(self) -> dict[str, Any]:
        """Rows, span, rate, CV, requests per minute, lengths: see ``arrivals.describe``."""
        whole(f"{self.name}: number of requests", len(self.requests))
        _, arrival, prompt, output, *_ = zip(*self.requests, strict=True)
        return describe(np.array(arrival, np.float64), np.array(prompt), np.array(output))

    @property
    def name(self) -> str:
        """The name of the source."""
        return str(self.source["name"])

    def hash(self) -> str:
        """sha256 (hex) of what is replayed: all requests and the concurrency, not their origin."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return digest(self.requests, f"workload 1 {len(self.requests)} {self.concurrency}")

    def validate(self) -> Workload:
        """Self, if it can be replayed; an InputError on the first request that cannot."""
        check(self.name, self.requests)
        whole("concurrency", 1 if self.concurrency is None else self.concurrency)
        return self


def synthetic(
    rate: float = 4.0,
    n: int = 1000,
    prompt_tokens: Tokens = 1024,
    output_tokens: Tokens = 128,
    *,
    arrivals: str = "poisson",
    cv: float = 1.0,
    seed: int = 0,
    tenants: Mapping[str, float] | None = None,
    salt_tenants: bool = False,
    slo_classes: Mapping[str, float] | None = None,
    groups: int = 0,
    shared_tokens: Tokens = 1024,
    skew: float = 0.0,
) -> Workload:
    """n independent requests at ``rate`` per second (``arrivals.arrival_times`` says how).

    ``tenants`` and ``slo_classes`` map names to weights; ``salt_tenants`` gives each tenant a
    cache of its own. With ``groups`` > 0 each prompt begins with the text of one group:
    ``shared_tokens`` long (drawn once per group), in front of its own ``prompt_tokens``; the k-th
    group is drawn with weight k**-skew (0: all alike).
    """
    n = whole("n", n)
    time = draw.arrival_times(arrivals, rate, n, draw.stream(seed, 0), cv).tolist()
    total = draw.lengths("prompt_tokens", prompt_tokens, draw.stream(seed, 1), n).tolist()
    output = draw.lengths("output_tokens", output_tokens, draw.stream(seed, 2), n).tolist()
    who = draw.labels("tenant", tenants, draw.stream(seed, 3), n)
    level = draw.labels("SLO class", slo_classes, draw.stream(seed, 4), n)
    salts: Iterable[str | None] = who if salt_tenants and tenants else repeat(None)
    texts: Iterable[Prompt | None] = repeat(None)
    if whole("groups", groups, 0):
        weight = np.arange(1, groups + 1) ** -float(skew)
        pick = draw.stream(seed, 5).choice(groups, size=n, p=weight / weight.sum()).tolist()
        size = draw.lengths("shared_tokens", shared_tokens, draw.stream(seed, 6), groups).tolist()
        texts = [((g, size[g]), (groups + k, total[k])) for k, g in enumerate(pick)]
        total = [size[g] + own for g, own in zip(pick, total, strict=True)]
    columns = zip(count(), time, total, output, texts, repeat(None), who, level, salts)
    return Workload([Request(*row) for row in columns], None, seed, _source("synthetic"))


def closed_loop(
    concurrency: int, n: int, prompt_tokens: Tokens = 1024, output_tokens: Tokens = 128, **more: Any
) -> Workload:
    """n requests of ``concurrency`` clients; each sends its next one when its last has ended.

    ``more`` goes to ``synthetic``. All requests arrive at 0 and wait for a slot.
    """
    opened = synthetic(1.0, n, prompt_tokens, output_tokens, **more).with_arrivals(np.zeros(n))
    return replace(opened, concurrency=whole("concurrency", concurrency))


def documents(
    rate: float, n: int, documents: int, document_tokens: Tokens = 16384, **more: Any
) -> Workload:
    """n questions about a number of long documents, each the shared front of its prompts.

    ``more`` goes to ``synthetic``: ``prompt_tokens`` is the question, ``skew=1`` makes a few
    documents popular.
    """
    groups = whole("documents", documents)
    return synthetic(rate, n, groups=groups, shared_tokens=document_tokens, **more)


def sessions(
    rate: float,
    n: int,
    turns: Tokens = 4,
    *,
    system_tokens: int = 512,
    user_tokens: Tokens = 128,
    output_tokens: Tokens = 256,
    think: float = 10.0,
    seed: int = 0,
) -> Workload:
    """n multi-turn chats on one system prompt, starting at ``rate`` per second (Poisson).

    The next prompt is the whole history, the last answer included, and a new user segment, sent
    an exponential ``think`` (mean, s) after that answer. A later turn's ``arrival`` is the
    earliest there could be: the session's start and its think times, as if answers took no time.
    """
    start = draw.arrival_times("poisson", rate, n, draw.stream(seed, 0)).tolist()
    deep = draw.lengths("turns", turns, draw.stream(seed, 1), n).tolist()
    user = draw.lengths("user_tokens", user_tokens, draw.stream(seed, 2), sum(deep)).tolist()
    output = draw.lengths("output_tokens", output_tokens, draw.stream(seed, 3), sum(deep)).tolist()
    pause = (draw.stream(seed, 4).exponential(size=sum(deep)) * think).tolist()
    rows: list[Request] = []
    for session, when in enumerate(start):
        text, after, gap = _system(system_tokens), None, 0.0
        for _ in range(deep[session]):
            k = len(rows)
            text = turn(rows, when, text, user[k], output[k], session, after, gap)
            after, gap, when = k, pause[k], when + pause[k]
    return Workload(in_order(rows), None, seed, _source("sessions")).validate()


def agents(
    rate: float,
    n: int,
    children: int = 4,
    *,
    system_tokens: int = 2048,
    task_tokens: Tokens = 512,
    output_tokens: Tokens = 256,
    seed: int = 0,
) -> Workload:
    """n agents that fork and join, starting at ``rate`` per second (Poisson).

    A plan, then ``children`` requests at once that continue the plan's text, then a join that
    quotes the plan and every child's answer. A request can wait for one other only, so the join
    waits for the child with the longest answer.
    """
    start = draw.arrival_times("poisson", rate, n, draw.stream(seed, 0)).tolist()
    size = n * (whole("children", children) + 2)
    task = draw.lengths("task_tokens", task_tokens, draw.stream(seed, 1), size).tolist()
    output = draw.lengths("output_tokens", output_tokens, draw.stream(seed, 2), size).tolist()
    rows: list[Request] = []
    for session, when in enumerate(start):
        plan = len(rows)
        text = turn(rows, when, _system(system_tokens), task[plan], output[plan], session)
        joined = text
        for k in range(plan + 1, plan + 1 + children):
            joined += turn(rows, when, text, task[k], output[k], session, plan)[-1:]
        k, last = len(rows), max(rows[plan + 1 :], key=lambda row: row.output_tokens).id
        turn(rows, when, joined, task[k], output[k], session, last)
    return Workload(in_order(rows), None, seed, _source("agents"))


def _system(tokens: int) -> Prompt:
    return ((0, tokens),) if whole("system_tokens", tokens, 0) else ()
