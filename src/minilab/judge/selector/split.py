"""Split: prefill and decode on instances of their own, with a transfer between them.

prefill   a prompt is a step of its own, or a few: S = fixed + dP; capacity 1 / S per instance
transfer  bytes / bandwidth + latency, one at a time per prefill instance
decode    B = r * (O / E) * D(B): no prompt ever joins a step
"""

import math
from typing import Any

from minilab.judge.selector.pool import Steady, batch_size, decode_step, most_sequences

BUDGET = 8192.0
"""Tokens of a prefill step at most."""


def prefill_pool(step: Any, load: Any, instances: int) -> Steady:
    """The prefill side; ``load.rate`` is of the whole deployment."""
    pieces = max(1, math.ceil(load.new / BUDGET))
    service = pieces * (step.per_step(load.new / pieces) + step.per_seq)
    service += step.per_pair * (load.new * load.cached + load.new * (load.new + 1.0) / 2.0)
    rate = load.rate / instances
    rho = rate * service
    wait = math.inf
    if rho < 1.0:
        wait = rho * service * (1.0 + load.cv * load.cv) / (2.0 * (1.0 - rho))
    return Steady(capacity=instances / service, own=service, wait=wait, busy=min(1.0, rho),
                  rho=rho, service=service)  # fmt: skip


def decode_pool(step: Any, load: Any, instances: int) -> Steady:
    """The decode side; ``load.rate`` is of the whole deployment."""
    most = most_sequences(load)
    if most < 1.0:
        return Steady(capacity=0.0, batch=0.0, most=most, gap=math.inf, step=math.inf, busy=1.0)
    steps = load.output / load.emitted
    capacity = instances * most / (steps * decode_step(step, load, most))
    alone = load.rate
    load.rate = alone / instances
    batch = batch_size(step, load, 0.0, most)
    load.rate = alone
    here = decode_step(step, load, batch)
    return Steady(
        capacity=capacity,
        batch=batch,
        most=most,
        gap=here / load.emitted,
        step=here,
        busy=min(1.0, load.rate / capacity),
    )


def transfer_time(tokens: float, bytes_per_token: float, link: dict[str, Any]) -> float:
    """Seconds to move a prompt's KV over one link."""
    return float(link["latency"]) + tokens * bytes_per_token / float(link["bandwidth"])
