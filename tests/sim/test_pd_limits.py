"""Where the answer is known: queues of one server, the pool that fills up, the first token.

A split cluster that breaks one of these is wrong whatever it models.
"""

from __future__ import annotations

import numpy as np
import pytest
from pd_worlds import FREE, PdWorld, log_of

from minilab.core.config import SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.pd_router import PdRouter, PdRule
from minilab.core.pd_scheduler import UnyieldingScheduler
from minilab.core.routers import make_router
from minilab.core.scheduler import Scheduler
from minilab.facts.cost_terms import LinearCost
from minilab.facts.models import get_model
from minilab.facts.request import Request
from minilab.facts.runlog import RunLog
from minilab.facts.workload import synthetic
from minilab.sim.pd_cluster import PdCluster
from minilab.sim.pd_options import PdOptions
from minilab.sim.pd_sizer import TransferSizer
from minilab.sim.tick_cost import TickCost
from minilab.sim.topology import Topology

STEP = 0.01


def tandem(requests: list[Request], prefill: float, decode: float) -> RunLog:
    """One prompt at a time, a step of ``prefill`` s; one stream at a time, steps of ``decode`` s.

    The wire is free and the pools are larger than everything together.
    """
    config = SchedulerConfig(
        100_000, max_num_seqs=1, max_num_batched_tokens=64, enable_prefix_caching=False
    )
    costs = [LinearCost(0.0, 0.0, 0.0, fixed=seconds) for seconds in (prefill, decode)]
    pools = [[Instance(Scheduler(config), TickCost(cost))] for cost in costs]
    topology = Topology(1, FREE, FREE)
    sizer = TransferSizer(get_model("llama-3.1-8b"), "bf16", 1, 1e12, gather=False)
    cluster = PdCluster(
        (pools[0], pools[1]),
        PdRouter(PdRule(), make_router("round-robin"), make_router("round-robin")),
        sizer,
        topology,
        topology.place([1, 1]),
        PdOptions(alpha=0.0),
    )
    cluster.run(requests)
    return log_of(cluster).check()


def waits(arrivals: np.ndarray, service: float) -> np.ndarray:
    """Lindley: a server that takes ``service`` s each, first come first served."""
    wait, found = 0.0, []
    for gap in np.diff(arrivals, prepend=arrivals[0]):
        wait = max(0.0, wait + (service if found else 0.0) - gap)
        found.append(wait)
    return np.array(found)


@pytest.mark.parametrize("tokens", [4, 9, 17])
def test_each_pool_is_the_queue_of_its_phase(tokens: int) -> None:
    """Exactly: the prefill pool waits as Lindley says, the decode pool as for its own arrivals.

    The streams' service is (n - 1) steps. Below, at and above the prefill's service of 8 steps.
    """
    service = (tokens - 1) * STEP
    work = synthetic(8.0, 3_000, 32, tokens, seed=5)
    log = tandem(work.requests, prefill=8 * STEP, decode=STEP).requests
    np.testing.assert_allclose(log["queue"], waits(log["queued"], 8 * STEP), atol=1e-9)
    apart = log["transfer_wait"] + log["decode_wait"]
    np.testing.assert_allclose(apart, waits(log["first_token"], service), atol=1e-9)
    assert log["transfer"].max() == 0
    assert log["transfer_wait"].max() < STEP, "blocks are taken when the step under way is over"


@pytest.mark.parametrize(("load", "tokens"), [(0.4, 5), (0.7, 5), (0.7, 17)])
def test_mean_waits_are_those_of_m_d_1(load: float, tokens: int) -> None:
    """Pollaczek-Khinchine for the prompts; and two fixed services in a row wait, all in all, as
    long as the slower one alone would (Friedman 1965)."""
    prefill, decode = 8 * STEP, (tokens - 1) * STEP
    slowest = max(prefill, decode)
    work = synthetic(load / slowest, 16_000, 32, tokens, seed=7)
    log = tandem(work.requests, prefill=prefill, decode=STEP).requests

    def mean(service: float) -> float:
        busy = load / slowest * service
        return service * busy / (2 * (1 - busy))

    assert log["queue"].mean() == pytest.approx(mean(prefill), rel=0.08)
    both = log["queue"] + log["transfer_wait"] + log["decode_wait"]
    assert both.mean() == pytest.approx(mean(slowest), rel=0.08)


# -- the decode pool fills up ---------------------------------------------------------------------


def crowd() -> PdWorld:
    """Eight streams that each end up four times as long as their prompts; room for three."""
    requests = tuple(Request(i, 0.0, 8, 25) for i in range(8))
    prefill = SchedulerConfig(
        100, block_size=4, max_num_batched_tokens=64, max_num_seqs=8, enable_prefix_caching=False
    )
    decode = SchedulerConfig(
        24, block_size=4, max_num_batched_tokens=64, max_num_seqs=8, enable_prefix_caching=False
    )
    return PdWorld(requests, (prefill, decode))


def test_reservations_and_growing_streams_can_fill_the_pool_for_ever() -> None:
    """Who never gives blocks back gets stuck: all have some, nobody has enough, nothing ends."""
    cluster = crowd().run(scheduler=UnyieldingScheduler)
    log = log_of(cluster).check()
    assert (log.requests["status"] == "failed").all()
    pool = cluster.instances[-1].scheduler.pool
    assert pool.used == pool.num_blocks, "it is not for want of work that nothing runs"


def test_by_default_everybody_gets_through() -> None:
    cluster = crowd().run()
    log = log_of(cluster).check()
    assert log.finished.all()
    assert log.requests["preemptions"].sum() > 0, "or the pool was not full"


def test_headroom_keeps_streams_from_being_thrown_out() -> None:
    """Reserving only while every stream has room to grow trades preemptions for waiting."""
    world = crowd()
    roomy = PdWorld(world.requests, world.configs, options=PdOptions(alpha=0.0, headroom_tokens=25))
    plain, careful = world.log().requests, roomy.log().requests
    assert careful["preemptions"].sum() < plain["preemptions"].sum()
    assert careful["transfer_wait"].mean() > plain["transfer_wait"].mean()


def test_a_full_decode_pool_holds_up_the_prompts() -> None:
    """Back-pressure: KV that can't leave fills the prefill pool, and prompts queue for blocks."""
    world = crowd()
    small = SchedulerConfig(
        4, block_size=4, max_num_batched_tokens=64, max_num_seqs=8, enable_prefix_caching=False
    )
    tight = PdWorld(world.requests, (small, world.configs[1]))
    assert tight.log().finished.all()
    assert tight.log().requests["queue"].max() > 10 * world.log().requests["queue"].max()


# -- who puts out the first token -----------------------------------------------------------------


def test_the_side_of_the_first_token_moves_ttft_and_nothing_is_lost() -> None:
    """The decode side's first token waits for the transfer and a step; the tokens are as many."""
    base = PdWorld(
        tuple(Request(i, 0.2 * i, 8, 6) for i in range(5)),
        crowd().configs,
        link=FREE.__class__("slow", 1000.0, 0.05),
    )
    late = PdWorld(
        base.requests,
        base.configs,
        link=base.link,
        options=PdOptions(alpha=0.0, first_token="decode"),
    )
    early, later = base.log().check().requests, late.log().check().requests
    ttft = [log["first_token"] - log["arrival"] for log in (early, later)]
    assert (ttft[1] > ttft[0] + 0.05).all(), "the transfer alone takes 58 ms"
    assert (early["output_tokens"] == later["output_tokens"]).all()


def test_overlap_hides_all_but_the_last_layer() -> None:
    """A transfer that takes half as long as the prompt is over a layer's share after it."""
    step = 0.1
    config = SchedulerConfig(
        100, block_size=4, max_num_batched_tokens=64, max_num_seqs=8, enable_prefix_caching=False
    )
    slow = FREE.__class__("slow", 8 / (step / 2), 0.0)
    requests = (Request(0, 0.0, 8, 6),)
    spans = {}
    for overlap in (False, True):
        world = PdWorld(
            requests,
            (config, config),
            link=slow,
            costs=("constant", "constant"),
            options=PdOptions(alpha=0.0, reserve="arrival", overlap=overlap),
        )
        spans[overlap] = world.log().check().requests["transfer"][0]
    assert spans[False] == pytest.approx(step / 2)
    assert spans[True] == pytest.approx(step / 2 / 4), "four layers"
