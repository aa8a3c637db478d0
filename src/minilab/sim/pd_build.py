"""From the description of two pools to the cluster that runs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from minilab.core.block_hash import SegmentHasher
from minilab.core.instance import Instance
from minilab.core.pd_router import PdRouter
from minilab.core.pd_scheduler import UnyieldingScheduler
from minilab.core.router import Router
from minilab.core.scheduler import Scheduler
from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment
from minilab.sim.pd_cluster import PdCluster
from minilab.sim.speculation import Speculation
from minilab.sim.tick_cost import TickCost
from minilab.sim.tier_stack import tier_stack

if TYPE_CHECKING:
    from minilab.sim.pd_experiment import PdExperiment


def build_pools(
    split: PdExperiment,
    drafter: Callable[[int], Speculation | None],
    scheduler: Callable[..., Any] | None,
    skip: bool,
    concurrency: int | None,
    chained: int | None,
) -> PdCluster:
    """The cluster of ``split``; ``drafter(k)`` is what decode instance k guesses ahead with.

    The other arguments are those of ``Experiment.build``.

    Raises:
        InputError: a router that two pools cannot have.
    """
    prefill, decode = split.prefill_side(), split.decode_side()
    hasher = SegmentHasher(split.block_size, chained)
    plain = partial(Scheduler, hasher=hasher)
    patient = plain if split.preempt else partial(UnyieldingScheduler, hasher=hasher)
    cost = decode.cost_model().linear()
    senders = TickCost(prefill.cost_model().linear())
    receivers = TickCost(cost)
    make_sender, make_receiver = scheduler or plain, scheduler or patient
    stacks = tier_stack(prefill), tier_stack(decode)
    pools = (
        [
            Instance(make_sender(prefill.scheduler_config(), **stacks[0]()), senders, skip=skip)
            for _ in range(split.prefill_instances)
        ],
        [
            Instance(
                make_receiver(decode.scheduler_config(), **stacks[1]()),
                receivers,
                skip=skip,
                drafter=drafter(index),
            )
            for index in range(split.instances)
        ],
    )
    topology = split.topology()
    tps = [prefill.tp] * split.prefill_instances + [split.tp] * split.instances
    return PdCluster(
        pools,
        PdRouter(split.rule(), _router(prefill), _router(decode)),
        split.sizer(),
        topology,
        topology.place(tps, split.prefill_instances if split.apart else None),
        split.options(),
        request_overhead=cost.request_overhead,
        concurrency=concurrency,
    )


def _router(side: Experiment) -> Router:
    """The router of one pool.

    Raises:
        InputError: one that reads metrics on a timer; two pools have no such clock.
    """
    router = side.make_router(side.cost_model().linear().per_token)
    if getattr(router, "period", 0.0):
        raise InputError(
            f"router {side.router!r} with faults {side.router_faults!r} reads metrics on a timer, "
            "which is not modelled for two pools; use one that looks when a request arrives"
        )
    return router
