"""The benchmark's protocol as a workload of our own cluster.

Half of a measured latency is how it was measured: a closed loop of C clients that all start at
once, 10 * C requests, lengths uniform in 0.8 to 1 of the nominal one, no prefix cache; reported are
means over *all* requests, the first burst included.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol

from minilab.core.block_hash import SegmentHasher
from minilab.core.config import SchedulerConfig
from minilab.core.instance import Instance, RunCost
from minilab.core.scheduler import Scheduler
from minilab.facts.arrivals import uniform
from minilab.facts.capacity import default_kv_blocks
from minilab.facts.cost import FUSED_ALL_REDUCE, Constants, StepCost
from minilab.facts.hardware import GPU
from minilab.facts.models import ModelSpec
from minilab.facts.workload import Workload, closed_loop
from minilab.judge.launches import Launch
from minilab.judge.silicon_rows import SiliconRow
from minilab.sim.cluster import Cluster

REQUESTS_PER_CLIENT = 10
BLOCK_SIZE = 16
EXACT_OUTPUT_JITTER = 0.05
"""Clients with outputs of *exactly* one length would stay in step for ever, and each wave of
prompts would arrive at once; the published TTFTs show no such waves."""


class Deployed(Protocol):
    """A model on GPUs, launched with certain flags: a SiliconRow or a published run."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def gpu(self) -> GPU: ...
    @property
    def tp(self) -> int: ...
    @property
    def launch(self) -> Launch: ...


def cost_of(row: Deployed, constants: Constants) -> StepCost:
    """The step cost of a row's model and GPUs with ``constants`` (t_ar: fused where it is)."""
    if row.launch.fused:
        constants = replace(constants, t_ar=FUSED_ALL_REDUCE)
    return StepCost(row.spec, row.gpu, row.tp, "native", row.launch.kv_dtype, constants)


def nominal(row: SiliconRow) -> tuple[float, float]:
    """Mean prompt and output length in tokens."""
    share = 1.0 if row.launch.exact else 0.9
    return share * row.isl, share * row.osl


def workload(row: SiliconRow, seed: int = 0) -> Workload:
    """The requests of the benchmark: all there at 0, ``concurrency`` outstanding."""
    prompt, output = nominal(row)
    exact = row.launch.exact
    return closed_loop(
        row.concurrency,
        REQUESTS_PER_CLIENT * row.concurrency,
        uniform(prompt, 0.0 if exact else 1 / 9),
        uniform(output, EXACT_OUTPUT_JITTER if exact else 1 / 9),
        seed=seed,
    )


def kv_blocks(row: Deployed) -> int:
    """KV blocks of the row's engine at its default share of memory. Raises InputError."""
    launch = row.launch
    return default_kv_blocks(
        row.gpu, row.spec, row.tp, "native", launch.kv_dtype, BLOCK_SIZE, launch.utilization
    )


def cluster(row: SiliconRow, cost: RunCost, request_overhead: float) -> Cluster:
    """One instance under the row's limits, ``cost`` charging its steps."""
    config = SchedulerConfig(
        num_blocks=kv_blocks(row),
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=max(row.launch.budget, row.concurrency),
        max_num_seqs=row.concurrency,
        enable_prefix_caching=False,
    )
    scheduler = partial(Scheduler, hasher=SegmentHasher(BLOCK_SIZE))
    return Cluster(
        [Instance(scheduler(config), cost)],
        request_overhead=request_overhead,
        concurrency=row.concurrency,
    )
