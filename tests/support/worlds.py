"""Random small workloads and clusters, and the ways to run them that must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from minilab.core.config import POLICIES, SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.routers import make_router
from minilab.core.scheduler import Scheduler
from minilab.facts.cost_terms import LinearCost
from minilab.facts.request import Request
from minilab.facts.runlog import RunLog
from minilab.sim.cluster import Cluster
from minilab.sim.tick_cost import TickCost

COST = LinearCost(
    per_seq=1e-4, per_context=1e-6, per_pair=1e-7, fixed=5e-3, per_token=1e-4, request_overhead=0.0
)
CONSTANT = LinearCost(per_seq=0.0, per_context=0.0, per_pair=0.0, fixed=0.1)
WINDOWED = LinearCost(
    per_seq=0.0, per_context=1e-6, per_pair=0.0, per_window_context=3e-6, window=24, fixed=1e-2
)
COSTS = {"linear": COST, "constant": CONSTANT, "windowed": WINDOWED}


@dataclass(frozen=True)
class World:
    """One case: requests, limits, and what disturbs them."""

    requests: tuple[Request, ...]
    config: SchedulerConfig
    instances: int = 1
    router: str = "round-robin"
    cost: str = "linear"
    aborts: tuple[tuple[int, int], ...] = ()  # (request, tick)
    concurrency: int | None = None

    def cluster(self, scheduler: Any = Scheduler, skip: bool = True) -> Cluster:
        cost = TickCost(COSTS[self.cost])
        return Cluster(
            [Instance(scheduler(self.config), cost, skip=skip) for _ in range(self.instances)],
            make_router(self.router),
            concurrency=self.concurrency,
        )

    def run(self, scheduler: Any = Scheduler, skip: bool = True) -> Cluster:
        cluster = self.cluster(scheduler, skip)
        for request, tick in self.aborts:
            cluster.abort(request, tick)
        cluster.run(self.requests)
        return cluster

    def log(self, scheduler: Any = Scheduler, skip: bool = True) -> RunLog:
        cluster = self.run(scheduler, skip)
        states = sorted(cluster.states.values(), key=lambda state: state.id)
        return cluster.recorder.to_runlog(states, {"num_blocks": self.config.num_blocks})


@st.composite
def worlds(draw: Any, *, plain: bool = False) -> World:
    """Worlds that press on every limit: tiny pools, tiny budgets, arrivals on round times.

    ``plain`` leaves out what the plain scheduler need not know about.
    """
    size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    blocks = draw(st.integers(2, 40))
    seqs = draw(st.integers(1, 8))
    count = draw(st.integers(1, 14))
    contents = draw(st.integers(1, 4))
    requests = []
    arrival = 0.0
    for i in range(count):
        # Round numbers on purpose: they fall on step boundaries when a step lasts 0.1 s.
        arrival += draw(st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.3, 1.7]))
        prompt = draw(st.integers(1, size * blocks))
        output = draw(st.integers(1, 30))
        shared = draw(st.integers(0, prompt))
        content = draw(st.integers(0, contents))
        text = tuple(s for s in ((content, shared), (100 + i, prompt - shared)) if s[1])
        after = draw(st.none() | st.integers(0, i - 1)) if i and not plain else None
        requests.append(
            Request(
                i,
                arrival,
                prompt,
                output,
                text,
                cache_salt=draw(st.sampled_from([None, None, "a", ""])),
                after=after,
                think=draw(st.sampled_from([0.0, 0.25])) if after is not None else 0.0,
            )
        )
    aborts = ()
    if not plain:
        ids = st.tuples(st.integers(0, count - 1), st.integers(0, 3 << 44))
        aborts = tuple(draw(st.lists(ids, max_size=3)))
    return World(
        tuple(requests),
        SchedulerConfig(
            num_blocks=blocks,
            block_size=size,
            max_num_batched_tokens=draw(st.integers(seqs, 64)),
            max_num_seqs=seqs,
            policy=draw(st.sampled_from(POLICIES)),
            enable_prefix_caching=draw(st.booleans()),
        ),
        instances=draw(st.integers(1, 3)),
        router=draw(st.sampled_from(["round-robin", "least-load"])),
        cost=draw(st.sampled_from(sorted(COSTS))),
        aborts=aborts,
    )
