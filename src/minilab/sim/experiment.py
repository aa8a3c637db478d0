"""Experiment: one simulated run, fully described. It stands behind the CLI, sweeps and labs.

A description is a frozen, hashable, JSON-able value; ``run`` turns it into a RunLog, always the
same one for the same value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from minilab.core.block_hash import SegmentHasher
from minilab.core.config import POLICIES, SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.router import Router
from minilab.core.routers import FAULTS, ROUTERS, fault_names, make_router
from minilab.core.scheduler import Scheduler
from minilab.facts.capacity import default_kv_blocks
from minilab.facts.cost import StepCost, WfksCost, cost_from_dict
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.facts.runlog import RunLog
from minilab.facts.ticks import to_seconds
from minilab.facts.user_input import unknown_name
from minilab.facts.workload import Workload
from minilab.sim.cluster import Cluster
from minilab.sim.description import Description
from minilab.sim.environment import no_garbage_collection, versions
from minilab.sim.limits import check_blocks, check_time
from minilab.sim.speculation import Speculation, drafting_meta
from minilab.sim.tick_cost import TickCost
from minilab.sim.tier_stack import tier_meta, tier_stack


@dataclass(frozen=True, slots=True)
class Experiment(Description):
    """What is served, by what, and how. Sizes are tokens unless they say otherwise.

    Attributes:
        workload: which requests (see ``WorkloadSpec``).
        model, gpu: names of ``facts.models`` and ``facts.hardware``.
        tp: GPUs per instance (tensor parallel).
        instances: how many copies of the model serve.
        kv_blocks: KV blocks per instance; ``None``: what the GPU's memory holds at 90 %.
        router: a name of ``core.routers``, with options: ``cache-aware:slack=8``.
        router_faults: what goes wrong with it: ``stale=0.1+late-load``.
        prefix_index: ``hash-chain`` or ``radix``.
        tiers: stores below HBM, nearest first: ``cpu:gib=64+remote`` (``core.tiers``).
        tier_rule: what to fetch: what ``beats-recompute``, or ``always`` everything.
        num_speculative_tokens: drafts per request and step; 0: no speculation. Drafting itself is
            free here: only verifying costs.
        acceptance_rate: chance that a draft is accepted, given that those before it were.
        cost: ``None`` for data-sheet terms, or a cost model as JSON text (``facts.cost``).
    """

    model: str = "llama-3.1-8b"
    gpu: str = "h100"
    gpu_file: str | None = None
    tp: int = 1
    instances: int = 1
    weight_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    block_size: int = 16
    kv_blocks: int | None = None
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    policy: str = "mixed"
    prefix_cache: bool = True
    router: str = "round-robin"
    router_faults: str = ""
    prefix_index: str = "hash-chain"
    tiers: str = ""
    tier_rule: str = "beats-recompute"
    cost: str | None = None
    num_speculative_tokens: int = 0
    acceptance_rate: float = 0.7

    @property
    def gpus(self) -> int:
        """GPUs that the experiment uses."""
        return self.instances * self.tp

    # -- running --------------------------------------------------------------------------------

    def cost_model(self) -> StepCost | WfksCost:
        """What a step costs."""
        if self.cost is not None:
            return cost_from_dict(json.loads(self.cost), "cost")
        gpu = get_gpu(self.gpu, self.gpu_file)
        return StepCost(get_model(self.model), gpu, self.tp, self.weight_dtype, self.kv_dtype)

    def scheduler_config(self) -> SchedulerConfig:
        """Limits of each instance.

        Raises:
            InputError: limits that cannot work together, or a model that does not fit.
        """
        if self.policy not in POLICIES:
            raise unknown_name("policy", self.policy, POLICIES)
        blocks = self.kv_blocks
        if blocks is None:
            blocks = default_kv_blocks(
                get_gpu(self.gpu, self.gpu_file),
                get_model(self.model),
                self.tp,
                self.weight_dtype,
                self.kv_dtype,
                self.block_size,
            )
        try:
            return SchedulerConfig(
                num_blocks=blocks,
                block_size=self.block_size,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_num_seqs=self.max_num_seqs,
                policy=self.policy,
                enable_prefix_caching=self.prefix_cache,
                prefix_index=self.prefix_index,
            )
        except ValueError as error:
            raise InputError(str(error)) from None

    def check(self) -> Experiment:
        """Itself, if what it names exists and fits together; the workload is not looked at.

        Raises:
            InputError: it does not.
        """
        self.make_router(0.0)
        tier_stack(self)
        for name, value in (("instances", self.instances), ("tp", self.tp)):
            if value < 1:
                raise InputError(f"{name} is {value}; give a whole number of at least 1")
        get_model(self.model)
        get_gpu(self.gpu, self.gpu_file)
        check_blocks(self.instances, self.scheduler_config().num_blocks)
        self._drafter(0)
        self.cost_model()
        return self

    def build(
        self,
        scheduler: Callable[..., Any] | None = None,
        *,
        skip: bool = True,
        concurrency: int | None = None,
        chained: int | None = None,
    ) -> Cluster:
        """The cluster, with a ``scheduler`` of your own if you like.

        ``concurrency`` and ``chained`` are those of the workload.
        """
        self.check()
        if scheduler is None:
            hasher = SegmentHasher(self.block_size, chained)
            scheduler = partial(Scheduler, hasher=hasher)
        config, cost = self.scheduler_config(), self.cost_model()
        ticks = TickCost(cost.linear())
        stack = tier_stack(self)
        return Cluster(
            [
                Instance(
                    scheduler(config, **stack()), ticks, skip=skip, drafter=self._drafter(index)
                )
                for index in range(self.instances)
            ],
            self.make_router(cost.linear().per_token),
            request_overhead=cost.linear().request_overhead,
            concurrency=concurrency,
        )

    def make_router(self, seconds_per_token: float) -> Router:
        """The router with its faults, seeded by the workload's seed; prefill takes that long.

        Raises:
            InputError: a name, an option or a number that it does not have.
        """
        name, faults = self.router.partition(":")[0], self.router_faults
        if name not in ROUTERS:
            raise unknown_name("router", name, ROUTERS)
        for fault in fault_names(faults):
            if fault.partition("=")[0] not in FAULTS:
                raise unknown_name("router fault", fault.partition("=")[0], FAULTS)
        try:
            seed = self.workload.seed
            return make_router(self.router, seed, faults, seconds_per_token=seconds_per_token)
        except ValueError as error:
            raise InputError(str(error)) from None

    def _drafter(self, index: int) -> Speculation | None:
        if not self.num_speculative_tokens:
            return None
        try:
            seed = 1000 * self.workload.seed + index
            return Speculation(self.num_speculative_tokens, self.acceptance_rate, seed)
        except ValueError as error:
            raise InputError(str(error)) from None

    def run(self, workload: Workload | None = None, **build: Any) -> RunLog:
        """Simulate; ``workload`` saves loading it again, ``build`` goes to ``build``.

        ``meta["cpu_seconds"]`` is the CPU time of building the cluster and running it through;
        reading the trace, writing the record and statistics are not in it.
        """
        work = self.workload.load() if workload is None else workload
        check_time(max(request.arrival for request in work.requests))
        with no_garbage_collection():
            begin = time.process_time()
            cluster = self.build(concurrency=work.concurrency, chained=work.chained, **build)
            cluster.run(work.requests)
            spent = time.process_time() - begin
        check_time(to_seconds(cluster.now))
        return cluster.recorder.to_runlog(
            sorted(cluster.states.values(), key=lambda state: state.id),
            self._meta(work, cluster, spent),
        )

    def _meta(self, work: Workload, cluster: Cluster, spent: float) -> dict[str, Any]:
        schedulers: list[Any] = [instance.scheduler for instance in cluster.instances]
        blocks = [scheduler.pool.num_blocks for scheduler in schedulers]
        peaks = [scheduler.peak_used for scheduler in schedulers]
        return {
            "config": self.to_dict(),
            "workload_hash": work.hash(),
            "seed": self.workload.seed,
            "data": work.source,
            "gpus": self.gpus,
            "cpu_seconds": spent,
            "num_blocks": blocks[0],
            "kv_peak_usage": max(p / b for p, b in zip(peaks, blocks, strict=True)),
            "preemptions": sum(scheduler.num_preemptions for scheduler in schedulers),
            **tier_meta(schedulers),
            **drafting_meta(instance.drafter for instance in cluster.instances),
            "versions": versions(),
        }
