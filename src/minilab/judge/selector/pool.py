"""Pool: the steady state of instances that serve prompts and decodes together.

Per instance, with rate r (requests/s), a prompt's own work dP and E tokens per step and sequence:

    steps    D(B) = one step of B decodes (``Step.decode``)
    batch    B = r * (O / E) * D(B) / (1 - r * dP)          Little's law; prompts take r*dP of time
    capacity X = B_max / ((O / E) * D(B_max) + B_max * dP)
    wait     Pollaczek-Khinchine over the prompts' own time, chunks dilated by the decodes

B_max is what the KV pool holds, at most max_num_seqs.
"""

import math
from typing import Any

SEQUENCES = 256.0


class Load:
    """What one instance has to do.

    Attributes:
        rate: requests/s at one instance; whole: of the deployment.
        new: prompt tokens that are computed; cached: those found in the prefix cache.
        context: mean KV tokens of a decoding sequence; held: KV tokens it owns alone.
        output: tokens of an answer; emitted: tokens per step and sequence.
        width: positions computed per step and sequence.
        dilation: decode step's own time with drafting over without.
        cv: coefficient of variation of prompt lengths.
        room: KV tokens for sequences, shared prefixes taken off.
    """

    rate: float
    whole: float
    new: float
    cached: float
    context: float
    held: float
    output: float
    emitted: float
    width: float
    dilation: float
    cv: float
    room: float

    def __init__(self, **fields: Any) -> None:
        for name in fields:
            setattr(self, name, fields[name])


class Steady:
    """How an instance runs.

    Attributes:
        capacity: requests/s it can carry; batch: sequences that decode; most: that fit.
        step: a decode step; gap: mean gap between tokens; stall: a step with a chunk in it.
        room: tokens of the budget left for prompts.
        own: a prompt's own time; wait: mean time in the queue; chunks: steps of a prompt.
        busy: share of time that prompts take; rho, service: of the prompts' queue.
    """

    capacity: float
    batch: float
    most: float
    step: float
    gap: float
    stall: float
    own: float
    wait: float
    chunks: float
    busy: float
    rho: float
    room: float
    service: float

    def __init__(self, **fields: Any) -> None:
        for name in fields:
            setattr(self, name, fields[name])


def emitted_per_step(acceptance: float, drafts: int) -> float:
    """E[k]: tokens per verify step, (1 - a^(k+1)) / (1 - a)."""
    if not drafts:
        return 1.0
    if acceptance >= 1.0:
        return drafts + 1.0
    return (1.0 - acceptance ** (drafts + 1)) / (1.0 - acceptance)


def most_sequences(load: Load) -> float:
    """B_max: sequences that fit."""
    return max(0.0, min(SEQUENCES, load.room / load.held))


def decode_step(step: Any, load: Load, batch: float) -> float:
    """D(B) with drafting."""
    return float(step.decode(batch, load.context, load.width)) * load.dilation


def room_of(load: Load, batch: float, budget: float) -> float:
    """Tokens of a step's budget that decodes leave for prompts."""
    return max(16.0, budget - batch * load.width)


def prompt_time(step: Any, load: Load, batch: float, budget: float) -> float:
    """dP: what a prompt adds to the steps that it joins."""
    pieces = max(1, math.ceil(load.new / room_of(load, batch, budget)))
    return float(step.prompt(load.new, load.cached, batch, pieces))


def chunk_time(step: Any, load: Load, batch: float, room: float) -> float:
    """What a chunk of ``room`` tokens adds to its step, in the middle of its prompt."""
    part = min(load.new, room)
    return float(step.prompt(part, load.cached + (load.new - part) / 2.0, batch))


def batch_size(step: Any, load: Load, busy: float, most: float) -> float:
    """B of the steady state, at most ``most``.

    For a dense model D is a straight line, so Little's law is solved at once; reading experts bends
    it, which a dozen halvings settle to a 4,000th of ``most``.
    """
    steps = load.output / load.emitted * load.rate
    empty, full = decode_step(step, load, 0.0), decode_step(step, load, most)
    if steps * full >= most * (1.0 - busy):
        return most
    if not step.expert_read:
        return steps * empty / (1.0 - busy - steps * (full - empty) / most)
    low, high = 0.0, most
    for _ in range(12):
        middle = (low + high) / 2.0
        if steps * decode_step(step, load, middle) > middle * (1.0 - busy):
            low = middle
        else:
            high = middle
    return high


def _together(step: Any, load: Load, served: float, most: float, budget: float) -> Any:
    """(batch, busy): a prompt adds what depends on the batch, and the batch on what it adds."""
    batch, busy = 0.5 * most, 0.0
    for _ in range(4):
        before = batch
        busy = min(0.99, served * prompt_time(step, load, batch, budget))
        batch = batch_size(step, load, busy, most)
        if batch == before:  # a dense model settles at once
            break
    return batch, busy


def mixed(step: Any, load: Load, budget: float) -> Steady:
    """The steady state of an instance that computes prompts in chunks beside its decodes."""
    most = most_sequences(load)
    if most < 1.0:
        return Steady(capacity=0.0, batch=0.0, most=most, gap=math.inf, stall=math.inf,
                      own=math.inf, wait=math.inf, busy=1.0, step=math.inf, rho=1.0)  # fmt: skip
    steps = load.output / load.emitted
    work = prompt_time(step, load, most, budget)
    full = decode_step(step, load, most)
    capacity = most / (steps * full + most * work)
    batch, busy = _together(step, load, min(load.rate, capacity), most, budget)
    here = decode_step(step, load, batch)
    work = prompt_time(step, load, batch, budget)
    room = room_of(load, batch, budget)
    capacity = min(capacity, 1.0 / (work + here * load.new / room))
    chunks = max(1.0, math.ceil(load.new / room))
    service = work + here * load.new / room
    rho = load.rate * service
    wait = math.inf
    if load.rate < capacity and rho < 1.0:
        wait = rho * service * (1.0 + load.cv * load.cv) / (2.0 * (1.0 - rho))
    chunk = chunk_time(step, load, batch, room)
    return Steady(
        capacity=capacity,
        batch=batch,
        most=most,
        gap=here / (1.0 - busy) / load.emitted,
        step=here,
        stall=here + chunk,
        chunks=chunks,
        room=room,
        own=work + chunks * here,
        wait=wait,
        busy=busy,
        rho=rho,
        service=service,
    )
