"""The closed form: a closed-loop benchmark's TPOT and TTFT without a simulation.

    TPOT = D + (C - 1) / osl * dP
    TTFT = t_req + P + D / 2 + burst / 2 * (C - 1) * dP + queue

D is a decode step of the running batch, dP what one more prompt adds to the steps it joins, P the
prompt's own step. Every other client puts one prompt into each ``osl`` steps of mine, so a token
takes (C - 1)/osl prompts longer than its decode step. In TTFT, ``burst`` is the share of requests
that start together (1 in 10), and ``queue`` the wait behind prompts that come later, by their share
of time rho: 0.9 * rho * dP / (2 * max(1 - rho, 0.15)). Clients whose requests do not fit the KV
pool wait for those that run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minilab.facts.cost import Constants
from minilab.judge import protocol
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.terms import FEATURES, Array, matrix, row_values, shape_of, values

REQUESTS = FEATURES.index("requests")
BURST = 1 / protocol.REQUESTS_PER_CLIENT
LEAST_IDLE = 0.15


class Latency(NamedTuple):
    """Seconds."""

    ttft: float
    tpot: float


@dataclass(frozen=True)
class ClosedForm:
    """The parts for one row as features (see ``terms``): ``decode`` D, ``prompt`` dP, TPOT's sum.

    ``running``: clients whose requests fit the KV pool at a time; ``clients``: C.
    """

    decode: Array
    prompt: Array
    tpot: Array
    running: float
    clients: int
    output: float

    @classmethod
    def of(cls, row: SiliconRow, limit: bool = True) -> ClosedForm:
        """The features of a row. ``limit``: whether the KV pool bounds the running batch."""
        shape = shape_of(row)
        prompt, output = protocol.nominal(row)
        context = prompt + output / 2
        running = float(row.concurrency)
        if limit:
            tokens = protocol.kv_blocks(row) * protocol.BLOCK_SIZE
            running = max(1.0, min(running, tokens / context))
        seen = min(context, shape.window) if shape.window else context
        window = running * seen if shape.window else 0.0
        idle: float = 1.0 - shape.expert_share
        touched = 1 - idle**running
        decode = np.array([1, running, touched, running, running * context, window, 0, 0])
        steps = float(max(1.0, prompt / row.launch.budget))
        more = steps * (1 - idle ** (running + prompt / steps) - touched)
        pairs = prompt * (prompt + 1) / 2
        one = np.array([0, prompt, more, steps, 0, 0, pairs, 0])
        # Prompts that share a step share its reading of experts, too.
        joined = float(max(1.0, (running - 1) * steps / output))
        shared = one.copy()
        shared[2] /= joined
        return cls(
            decode, one, decode + (running - 1) / output * shared, running, row.concurrency, output
        )

    def ttft(self, seconds: Array) -> Array:
        """TTFT's features, given ``seconds`` per feature: how long the queue is depends on them."""
        step, prompt = float(self.decode @ seconds), float(self.prompt @ seconds)
        busy = self.running * prompt
        rho = busy / (busy + self.output * step)
        burst = BURST / 2 * (self.running - 1)
        queue = (1 - BURST) * rho / (2 * max(1 - rho, LEAST_IDLE))
        blocked = (self.clients - self.running) / self.running * self.output
        found: Array = (1 + burst + queue) * self.prompt + 1.5 * self.decode + blocked * self.tpot
        found[REQUESTS] = 1.0
        return found

    def latency(self, seconds: Array) -> Latency:
        """TTFT and TPOT, given seconds per feature (``matrix @ x``)."""
        return Latency(float(self.ttft(seconds) @ seconds), float(self.tpot @ seconds))


def predict(row: SiliconRow, constants: Constants) -> Latency:
    """TTFT and TPOT of a row's benchmark by the closed form. Raises InputError."""
    x = row_values(row, values(constants))
    return ClosedForm.of(row).latency(matrix(row) @ x)
