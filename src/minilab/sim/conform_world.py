"""Worlds for conformance: small cases that press on every limit, drawn by a seed or made to starve.

A world is a handful of requests, the limits of one scheduler, and clients that give up. Small on
purpose: what breaks in one can be read by eye, and shrinking makes it smaller still.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from minilab.core.config import SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.request import RequestState
from minilab.facts.cost_terms import LinearCost
from minilab.facts.request import Request, Segment
from minilab.facts.runlog import RunLog
from minilab.facts.ticks import to_ticks
from minilab.sim.cluster import Cluster
from minilab.sim.tick_cost import TickCost

COST = LinearCost(per_seq=0.0, per_context=1e-6, per_pair=0.0, fixed=0.1)
"""A step of 0.1 s: arrivals on round times fall on its boundaries."""


@dataclass(frozen=True)
class World:
    """Requests in order of arrival with ids 0, 1, ...; ``aborts``: (id, seconds)."""

    name: str
    requests: tuple[Request, ...]
    config: SchedulerConfig
    aborts: tuple[tuple[int, float], ...] = ()

    def cluster(
        self, scheduler: Callable[[SchedulerConfig], object], *, skip: bool = False
    ) -> Cluster:
        """One instance with that scheduler, its clients ready to give up."""
        instance = Instance(scheduler(self.config), TickCost(COST), skip=skip)  # type: ignore[arg-type]
        cluster = Cluster([instance])
        for request, seconds in self.aborts:
            cluster.abort(request, to_ticks(seconds))
        return cluster

    def log(self, scheduler: Callable[[SchedulerConfig], object], *, skip: bool = False) -> RunLog:
        """Run it through and keep the record."""
        cluster = self.cluster(scheduler, skip=skip)
        cluster.run(self.requests)
        return record(cluster)

    def keep(self, ids: list[int]) -> World:
        """Only these requests, numbered anew."""
        new = {old: position for position, old in enumerate(ids)}
        requests = tuple(self.requests[old]._replace(id=new[old]) for old in ids)
        aborts = tuple((new[old], seconds) for old, seconds in self.aborts if old in new)
        return replace(self, requests=requests, aborts=aborts)

    def lines(self) -> list[str]:
        """The world in words, a line for the limits and one for each request."""
        c = self.config
        size, slots = _count(c.block_size, "token"), _count(c.max_num_seqs, "slot")
        cache = "with" if c.enable_prefix_caching else "no"
        told = [
            f"{_count(c.num_blocks, 'block')} of {size}, budget {c.max_num_batched_tokens}, "
            f"{slots}, {cache} prefix cache"
        ]
        for words, alike in groupby(self.requests, key=self._words):
            first, *more = alike
            who = f"requests {first.id} to {more[-1].id}" if more else f"request {first.id}"
            last = more[-1].arrival if more else first.arrival
            when = f"{first.arrival:g}" + (f" to {last:g}" if last > first.arrival else "")
            told.append(f"{who} at {when} s: {words}" + (" each" if more else ""))
        return told

    def _words(self, request: Request) -> str:
        text = f"prompt {request.prompt_tokens}, output {request.output_tokens}"
        if self.config.enable_prefix_caching and request.prompt is not None:
            text += f", text {'+'.join(f'{name}[:{n}]' for name, n in request.prompt)}"
            text += f", salt {request.cache_salt!r}" if request.cache_salt is not None else ""
        given_up = [f", aborted at {at:g} s" for number, at in self.aborts if number == request.id]
        return text + "".join(given_up)


def record(cluster: Cluster) -> RunLog:
    """The run log of a cluster that has run."""
    states: list[RequestState] = sorted(cluster.states.values(), key=lambda state: state.id)
    return cluster.recorder.to_runlog(states, {})


def random_world(seed: int) -> World:
    """Tiny pools, tiny budgets, shared texts and salts, arrivals on step boundaries, aborts."""
    rng = random.Random(f"conform {seed}")
    size = rng.choice([1, 2, 4, 8])
    blocks = rng.randint(2, 24)
    seqs = rng.randint(1, 6)
    longest = max(1, size * blocks // rng.choice([1, 2, 4]))  # shorter: more run at once
    requests: list[Request] = []
    arrival = 0.0
    for number in range(rng.randint(1, 12)):
        arrival += rng.choice([0.0, 0.0, 0.01, 0.1, 0.3, 1.7])
        prompt = rng.randint(1, longest) if rng.random() < 0.95 else size * blocks + 1
        shared = rng.randint(0, prompt)
        if requests and rng.random() < 0.2:  # the same text, in the same instant
            twin = requests[-1]._replace(id=number, output_tokens=rng.randint(1, 20))
            requests.append(twin)
            arrival = twin.arrival
            continue
        pieces: tuple[Segment, ...] = (
            (rng.randint(0, 2), shared),
            (100 + number, prompt - shared),
        )
        requests.append(
            Request(
                number,
                arrival,
                prompt,
                rng.randint(1, 20),
                tuple(piece for piece in pieces if piece[1]),
                cache_salt=rng.choice([None, None, "a", ""]),
            )
        )
    aborts = {
        rng.randrange(len(requests)): round(rng.uniform(0, 3), 2)
        for _ in range(rng.choice([0, 0, 2]))
    }
    config = SchedulerConfig(
        num_blocks=blocks,
        block_size=size,
        max_num_batched_tokens=rng.randint(seqs, 48),
        max_num_seqs=seqs,
        enable_prefix_caching=rng.random() < 0.5,
    )
    return World(f"seed {seed}", tuple(requests), config, tuple(sorted(aborts.items())))


def streams() -> Iterator[World]:
    """Two requests hold the slots, a third waits, and 100 others follow without end in sight.

    The third is longer than those that follow, shorter, or alike: whoever sorts the queue by length
    or takes the newest first lets one of them wait for all.
    """
    config = SchedulerConfig(200, 4, 64, 2, enable_prefix_caching=False)
    for name, waits, follow in (("long", 60, 8), ("short", 8, 60), ("alike", 8, 8)):
        prompts = [8, 8, waits, *[follow] * 100]
        requests = [Request(i, max(0, i - 2) * 0.05, tokens, 4) for i, tokens in enumerate(prompts)]
        yield World(f"a stream past a {name} request", tuple(requests), config)


def shrink(world: World, fails: Callable[[World], bool], tries: int = 300) -> World:
    """A smaller world in which ``fails`` still holds: requests dropped, aborts, then tokens."""
    budget = [tries]

    def still(candidate: World) -> bool:
        budget[0] -= 1
        return budget[0] >= 0 and fails(candidate)

    count = len(world.requests)
    piece = max(1, count // 2)
    while True:
        start = 0
        while start < len(world.requests):
            ids = [i for i in range(len(world.requests)) if not start <= i < start + piece]
            smaller = world.keep(ids)
            if ids and still(smaller):
                world = smaller
            else:
                start += piece
        if piece == 1:
            break
        piece //= 2
    for abort in world.aborts:
        fewer = replace(world, aborts=tuple(a for a in world.aborts if a != abort))
        world = fewer if still(fewer) else world
    for number in range(len(world.requests)):
        for smaller in _shorter(world, number):
            if still(smaller):
                world = smaller
    return world


def _shorter(world: World, number: int) -> Iterator[World]:
    """Variants with one request simpler: fewer tokens out, or text that is only its own."""
    request = world.requests[number]
    for output in (1, 2, request.output_tokens // 2):
        if 0 < output < request.output_tokens:
            yield _with(world, request._replace(output_tokens=output))
    if request.prompt is not None:
        yield _with(world, request._replace(prompt=None, cache_salt=None))


def _with(world: World, request: Request) -> World:
    requests = list(world.requests)
    requests[request.id] = request
    return replace(world, requests=tuple(requests))


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
