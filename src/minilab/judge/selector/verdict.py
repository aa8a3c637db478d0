"""Verdict: one stack on one workload: latency, goodput, and the bottleneck as bars.

A bar is how much of a resource is taken by what can be served, 1 being all of it (or all of the
SLO):

    prefill_compute    share of time that prompts take, or the prompt's own time over the TTFT limit
    decode_bandwidth   share of time that decoding must take, or the decode step over the ITL limit
    kv_capacity        tokens in flight over those that fit
    kv_transfer        share of time the link is busy, or a transfer over the TTFT limit
    queueing           the wait over the TTFT limit; named where none of the others is the cause
"""

import math
from typing import Any

from minilab.judge.selector.pool import Load, emitted_per_step, mixed
from minilab.judge.selector.room import BLOCK
from minilab.judge.selector.shares import first_share, gap_share, tail, transfer_share
from minilab.judge.selector.split import decode_pool, prefill_pool, transfer_time
from minilab.judge.selector.step import Step

BARS = ["prefill_compute", "decode_bandwidth", "kv_capacity", "kv_transfer", "queueing"]

CAUSE = 0.7
"""A resource of which less is taken is not the cause of a queue."""


class Verdict:
    """What a stack comes to: seconds, requests/s, and bars by name."""

    stack: Any
    tp: int
    gpus: int
    layout: str
    bars: dict[str, float]
    bottleneck: str
    ttft: float
    itl: float
    stall: float
    within: float
    attainment: float
    goodput: float
    goodput_per_gpu: float
    capacity: float
    tokens_in_flight: float
    cost_per_million: float

    def __init__(self, **fields: Any) -> None:
        for name in fields:
            setattr(self, name, fields[name])


class Whole:
    """A deployment: GPUs, its layout in words, requests/s it can carry, sequences in flight."""

    def __init__(self, gpus: int, layout: str, capacity: float, flying: float) -> None:
        self.gpus = gpus
        self.layout = layout
        self.capacity = capacity
        self.flying = flying


class Times:
    """Mean TTFT, mean gap, a gap with a prompt in it (s), the share within the gap limit."""

    def __init__(self, ttft: float, itl: float, stall: float, within: float) -> None:
        self.ttft = ttft
        self.itl = itl
        self.stall = stall
        self.within = within


def judge(settings: Any, stack: Any, server: Any, instances: int) -> Verdict:
    """Evaluate ``stack`` on ``instances`` instances; hopeless ones get goodput 0."""
    load = load_of(settings, stack, server.room, instances)
    if stack.layout != "split":
        return _mixed(settings, server, load, stack, instances)
    least = _balanced(server, load, instances)
    best = _split(settings, stack, server, load, least, instances - least)
    if least + 1 < instances:
        more = _split(settings, stack, server, load, least + 1, instances - least - 1)
        if (more.goodput, more.capacity) > (best.goodput, best.capacity):
            best = more
    return best


def _balanced(server: Any, load: Load, instances: int) -> int:
    """Prefill instances at which both pools are as full as each other, rounded down to a whole
    number that leaves both pools one."""
    load.rate = load.whole
    first = prefill_pool(server.step, load, 1).capacity
    rest = decode_pool(server.step, load, 1).capacity
    if first <= 0.0 or rest <= 0.0:
        return 1
    return max(1, min(instances - 1, int(instances * rest / (first + rest))))


def load_of(settings: Any, stack: Any, room: float, instances: int) -> Load:
    """The work of one request, and what the KV pool has left beside the shared prefixes."""
    shared = settings.shared_tokens() if settings.prefix_share > 0 else 0.0
    groups = settings.groups * settings.tenants
    here = groups / instances if stack.routing else groups
    kept = min(1.0, 0.5 * room / (shared * here)) if shared else 0.0
    cached = math.floor(shared * kept / BLOCK) * BLOCK if shared else 0.0
    emitted = emitted_per_step(settings.acceptance, stack.drafts)
    return Load(
        rate=settings.rate,
        whole=settings.rate,
        new=max(1.0, settings.prompt - cached),
        cached=cached,
        context=settings.prompt + settings.output / 2.0,
        held=max(BLOCK, settings.prompt - cached + settings.output / 2.0),
        output=max(1.0, settings.output - 1.0),
        emitted=emitted,
        width=1.0 + stack.drafts,
        dilation=1.0 + (settings.draft_cost * stack.drafts),
        cv=settings.cv,
        room=room - cached * here,
    )


def _mixed(settings: Any, server: Any, load: Load, stack: Any, instances: int) -> Verdict:
    step = server.step
    load.rate = settings.rate / instances
    run = mixed(step, load, stack.budget)
    within = gap_share(settings, load, run)
    ttft = step.overhead + run.wait + run.own + 0.5 * run.step
    good = first_share(settings, step, load, run) * within if run.wait < math.inf else 0.0
    bars = {
        "prefill_compute": max(run.busy, run.own / settings.ttft),
        "decode_bandwidth": _decode_bar(settings, step, load, run, min(load.rate, run.capacity)),
        "kv_capacity": run.batch * load.held / load.room if run.most else math.inf,
        "kv_transfer": 0.0,
        "queueing": run.wait / settings.ttft,
    }
    layout = f"{instances} x tp{server.tp}"
    whole = Whole(instances * server.tp, layout, run.capacity * instances, run.batch * instances)
    times = Times(ttft, run.gap, run.stall, within)
    return _verdict(settings, stack, server.tp, whole, bars, times, good)


def _split(
    settings: Any, stack: Any, server: Any, load: Load, prefills: int, decodes: int
) -> Verdict:
    step = server.step
    load.rate = settings.rate
    first = prefill_pool(step, load, prefills)
    rest = decode_pool(step, load, decodes)
    moved = transfer_time(settings.prompt, server.kv_bytes, server.link)
    served = min(settings.rate, rest.capacity) / decodes
    wire = settings.rate / prefills * moved
    ttft = step.overhead + first.wait + first.own
    good = 0.0
    within = transfer_share(settings, load, rest, moved, min(wire, 0.99))
    if first.wait < math.inf and wire < 1.0 and settings.rate < rest.capacity:
        limit = settings.ttft - step.overhead
        good = tail(limit, first.own, first.wait, first.rho) * within
    bars = {
        "prefill_compute": max(first.busy, first.own / settings.ttft),
        "decode_bandwidth": _decode_bar(settings, step, load, rest, served),
        "kv_capacity": rest.batch * load.held / load.room if rest.most else math.inf,
        "kv_transfer": max(wire, moved / settings.ttft),
        "queueing": first.wait / settings.ttft,
    }
    capacity = min(first.capacity, rest.capacity, prefills / moved)
    layout = f"{prefills}P + {decodes}D x tp{server.tp}"
    whole = Whole((prefills + decodes) * server.tp, layout, capacity, rest.batch * decodes)
    times = Times(ttft, rest.gap, rest.step, within)
    return _verdict(settings, stack, server.tp, whole, bars, times, good)


def _verdict(
    settings: Any, stack: Any, tp: int, whole: Any, bars: dict[str, Any], times: Any, good: float
) -> Verdict:
    goodput = settings.rate * good
    price = settings.price * whole.gpus / 3600.0
    tokens = goodput * settings.output
    return Verdict(
        stack=stack,
        tp=tp,
        gpus=whole.gpus,
        layout=whole.layout,
        bars=bars,
        bottleneck=bottleneck(bars),
        ttft=times.ttft,
        itl=times.itl,
        stall=times.stall,
        within=times.within,
        attainment=good,
        goodput=goodput,
        goodput_per_gpu=goodput / whole.gpus,
        capacity=whole.capacity,
        tokens_in_flight=whole.flying * (settings.prompt + settings.output / 2.0),
        cost_per_million=price / tokens * 1e6 if tokens else math.inf,
    )


def bottleneck(bars: dict[str, Any]) -> str:
    """The largest bar of a resource; queueing only where no resource is the cause."""
    top = BARS[0]
    for name in BARS[:4]:
        if bars[name] > bars[top]:
            top = name
    if bars[top] < CAUSE and bars["queueing"] > bars[top]:
        return "queueing"
    return top


def _decode_bar(settings: Any, step: Step, load: Load, run: Any, served: float) -> float:
    """Time that decoding must take beyond what batching shares, or the step over its limit."""
    each = run.step - step.fixed * load.dilation
    share = served * load.output / load.emitted * each / run.batch if run.batch else 0.0
    return float(max(share, run.step / load.emitted / settings.itl))
