"""Random small split clusters, with every limit and every option of the hand-over pressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from worlds import COSTS

from minilab.core.config import SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.pd_router import PD_MODES, PdRouter, PdRule
from minilab.core.routers import make_router
from minilab.core.scheduler import Scheduler
from minilab.facts.hardware import Link
from minilab.facts.request import Request
from minilab.facts.runlog import RunLog
from minilab.sim.pd_cluster import PdCluster
from minilab.sim.pd_options import PdOptions
from minilab.sim.pd_wires import Cargo
from minilab.sim.tick_cost import TickCost
from minilab.sim.topology import Topology

FREE = Link("free", float("inf"), 0.0)
SLOW = Link("slow", 1000.0, 1e-3)
ALWAYS = PdRule()
PLAIN = PdOptions(alpha=0.0)


class OneBytePerToken:
    """A model of ``layers`` layers whose KV is a byte a token, with or without staging."""

    def __init__(self, layers: int = 4, gather: bool = False) -> None:
        self.layers = layers
        self.gather = gather

    def size(self, tokens: int, blocks: int) -> Cargo:
        if self.gather:
            return Cargo(float(tokens), 1, 1e-3)
        return Cargo(float(tokens), blocks * self.layers)


@dataclass(frozen=True)
class PdWorld:
    """One case; ``configs`` are those of the prefill and the decode side."""

    requests: tuple[Request, ...]
    configs: tuple[SchedulerConfig, SchedulerConfig]
    pools: tuple[int, int] = (1, 1)
    rule: PdRule = ALWAYS
    options: PdOptions = PLAIN
    link: Link = FREE
    costs: tuple[str, str] = ("linear", "linear")
    gather: bool = False
    nics: int | None = None
    aborts: tuple[tuple[int, int], ...] = ()  # (request, tick)
    concurrency: int | None = None

    def cluster(self, skip: bool = True, scheduler: Any = Scheduler) -> PdCluster:
        pools = [
            [Instance(kind(config), TickCost(COSTS[cost]), skip=skip) for _ in range(count)]
            for config, cost, count, kind in zip(
                self.configs, self.costs, self.pools, (Scheduler, scheduler), strict=True
            )
        ]
        topology = Topology(1, self.link, self.link, self.nics)
        return PdCluster(
            (pools[0], pools[1]),
            PdRouter(self.rule, make_router("round-robin"), make_router("least-load")),
            OneBytePerToken(gather=self.gather),  # type: ignore[arg-type]
            topology,
            topology.place([1] * sum(self.pools)),
            self.options,
            concurrency=self.concurrency,
        )

    def run(self, skip: bool = True, scheduler: Any = Scheduler) -> PdCluster:
        cluster = self.cluster(skip, scheduler)
        for request, tick in self.aborts:
            cluster.abort(request, tick)
        cluster.run(self.requests)
        return cluster

    def log(self, skip: bool = True, scheduler: Any = Scheduler) -> RunLog:
        return log_of(self.run(skip, scheduler))


def log_of(cluster: PdCluster) -> RunLog:
    """The run log of a cluster that has run."""
    states = sorted(cluster.states.values(), key=lambda state: state.id)
    return cluster.recorder.to_runlog(states, {})


def _config(draw: Any, size: int, blocks: int, cache: bool) -> SchedulerConfig:
    seqs = draw(st.integers(1, 6))
    return SchedulerConfig(
        num_blocks=blocks,
        block_size=size,
        max_num_batched_tokens=draw(st.integers(seqs, 48)),
        max_num_seqs=seqs,
        enable_prefix_caching=cache,
    )


@st.composite
def pd_worlds(draw: Any) -> PdWorld:
    """Tiny pools on both sides, slow wires, early and late reservations, faults and aborts."""
    size = draw(st.sampled_from([1, 2, 4, 8]))
    blocks = draw(st.integers(3, 24))
    count = draw(st.integers(1, 12))
    requests, arrival = [], 0.0
    for i in range(count):
        arrival += draw(st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.3]))
        prompt = draw(st.integers(1, size * blocks))
        shared = draw(st.integers(0, prompt))
        content = draw(st.integers(0, 2))
        text = tuple(s for s in ((content, shared), (100 + i, prompt - shared)) if s[1])
        after = draw(st.none() | st.integers(0, i - 1)) if i else None
        requests.append(Request(i, arrival, prompt, draw(st.integers(1, 20)), text, after=after))
    cache = draw(st.booleans())
    reserve = draw(st.sampled_from(["prefill-end", "arrival"]))
    ticks = st.integers(0, 80).map(lambda k: k * (1 << 44) // 50 + 1)  # 20 ms apart
    ids = st.tuples(st.integers(0, count - 1), ticks)
    return PdWorld(
        tuple(requests),
        (_config(draw, size, blocks, cache), _config(draw, size, blocks, cache)),
        pools=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        rule=PdRule(
            draw(st.sampled_from(PD_MODES)), draw(st.integers(0, 30)), draw(st.integers(0, 2))
        ),
        options=PdOptions(
            reserve=reserve,
            overlap=reserve == "arrival" and draw(st.booleans()),
            first_token=draw(st.sampled_from(["prefill", "decode"])),
            headroom_tokens=draw(st.sampled_from([0, 0, 5])),
            alpha=draw(st.sampled_from([0.0, 1e-3])),
            max_transfers=draw(st.sampled_from([None, None, 1])),
            failure_rate=draw(st.sampled_from([0.0, 0.0, 0.5])),
            on_failure=draw(st.sampled_from(["recompute", "fail"])),
        ),
        link=draw(st.sampled_from([FREE, SLOW])),
        costs=(draw(st.sampled_from(sorted(COSTS))), draw(st.sampled_from(sorted(COSTS)))),
        gather=draw(st.booleans()),
        nics=draw(st.sampled_from([None, 1])),
        aborts=tuple(draw(st.lists(ids, max_size=3))),
    )
