"""The five bottlenecks by name, and small runs in which one knob makes each of them bind.

Used by chapter 0. ``measure`` runs an experiment and reads the signals; ``split_run`` puts a wire
between prefill and decode; chapter 2 goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minilab.core.config import SchedulerConfig
from minilab.core.plan import PLAIN, StepOutcome, StepPlan, StepResult
from minilab.core.scheduler import Scheduler
from minilab.facts.cost_terms import LinearCost, StepShape
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.sweep_row import Row, numbers


class Bottleneck(NamedTuple):
    """``limit``: what is used up. ``sign``: what rises first. Metric names of vLLM 0.32 and SGLang
    0.5.23. ``unlike``: how to tell it from its neighbour.
    """

    id: str
    name: str
    limit: str
    sign: str
    vllm: str
    sglang: str
    unlike: str


BOTTLENECKS = (
    Bottleneck(
        "prefill_compute",
        "prefill compute",
        "arithmetic: prompt tokens per second",
        "TTFT grows with prompt length; the token budget of the steps is full",
        "time_to_first_token_seconds less request_queue_time_seconds, iteration_tokens_total",
        "time_to_first_token_seconds less queue_time_seconds",
        "blocks and slots are left; gaps grow to the length of a full step and no further",
    ),
    Bottleneck(
        "decode_bandwidth",
        "decode bandwidth",
        "memory bandwidth: bytes of weights and KV read per step",
        "TPOT rises with the number of running requests, and no prompt is to blame",
        "request_time_per_output_token_seconds, num_requests_running",
        "request_time_per_output_token_seconds, num_running_reqs",
        "TTFT stays; all gaps grow alike, not some",
    ),
    Bottleneck(
        "kv_capacity",
        "KV capacity",
        "blocks: tokens in flight",
        "KV usage at 1 with preemptions, while slots and arithmetic are left",
        "kv_cache_usage_perc, num_preemptions_total",
        "token_usage, num_retracted_requests_total",
        "requests wait although few run",
    ),
    Bottleneck(
        "kv_transfer",
        "KV transfer",
        "the wire: bytes of KV per second between instances",
        "one long gap after the first token; TTFT and TPOT look well",
        "nixl_xfer_time_seconds, nixl_bytes_transferred",
        "kv_transfer_latency_ms, kv_transfer_speed_gb_s",
        "exists only where KV travels: split pools, tiers",
    ),
    Bottleneck(
        "queueing",
        "queueing",
        "nothing, on average: work comes faster than it is done for a while",
        "time in the queue, while the means of everything else look idle",
        "request_queue_time_seconds, num_requests_waiting",
        "queue_time_seconds, num_queue_reqs",
        "comes and goes with the traffic; the others stay",
    ),
)
"""In the order in which a request meets them, the queue last: it is what the others turn into."""


class Meter(Scheduler):
    """The real scheduler with a meter: seconds spent in steps, and in steps whose budget is full.

    ``cost`` says how many seconds a step of some shape lasts.
    """

    def __init__(self, config: SchedulerConfig, cost: LinearCost) -> None:
        super().__init__(config)
        self.cost = cost
        self.busy_seconds = self.full_seconds = 0.0

    def update(self, plan: StepPlan, outcome: StepOutcome = PLAIN, steps: int = 1) -> StepResult:
        """See ``Scheduler``; a run of decode steps is charged at its middle."""
        seqs = plan.num_decodes + len(plan.prefills)
        context = plan.context + plan.num_decodes * (steps - 1) // 2
        spent = steps * self.cost.seconds(StepShape(plan.num_tokens, seqs, context, plan.pairs))
        self.busy_seconds += spent
        if plan.num_tokens >= self.config.max_num_batched_tokens:
            self.full_seconds += spent
        return super().update(plan, outcome, steps)


def measure(experiment: Experiment, slos: str) -> Row:
    """``sim.sweep_row.numbers`` of a run of one instance, and two shares of its duration.

    ``busy_share``: some step is under way; ``full_share``: one whose token budget is full.

    Raises:
        InputError: more than one instance, whose meters would not add up to one share.
    """
    if experiment.instances != 1:
        raise InputError(f"measure: {experiment.instances} instances; the shares are of one")
    cost = experiment.cost_model().linear()
    meters: list[Meter] = []

    def make(config: SchedulerConfig) -> Meter:
        meters.append(Meter(config, cost))
        return meters[0]

    log = experiment.run(scheduler=make)
    shares = {
        "busy_share": meters[0].busy_seconds / log.duration,
        "full_share": meters[0].full_seconds / log.duration,
    }
    return {**numbers(log, slos), **shares}


def turn(
    experiment: Experiment, knob: str, values: Sequence[Any], slos: str, least: float = 0.7
) -> tuple[Any, Row]:
    """Turn one knob, value by value, until fewer than ``least`` of the requests are good.

    The value at which that happened (else the last one), and what was measured there.
    """
    for value in values:
        row = measure(experiment.with_(**{knob: value}), slos)
        if row["attainment"] < least:
            break
    return value, row


def split_run(experiment: Experiment, link: str) -> RunLog:
    """One GPU prefills, one decodes, and ``link`` carries the KV between them.

    Both run the real scheduler. The prefill side gives the first token; a transfer has a descriptor
    per block and layer, and shares the wire with the others under way (``sim.pd_experiment``).
    """
    return PdExperiment.split(experiment, link=link).run().check()


def split_measure(experiment: Experiment, slos: str, link: str) -> dict[str, Any]:
    """``numbers`` of a ``split_run``, the median transfer (s) and the wire's busy share."""
    log = split_run(experiment, link)
    spans = log.requests["transfer"]
    extra = {
        "transfer_p50": float(np.median(spans)),
        "wire_share": float(log.meta["wire_seconds"] / log.duration),
    }
    return {**numbers(log, slos, gpus=2), **extra}
