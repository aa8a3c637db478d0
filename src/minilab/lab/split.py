"""Arithmetic of a prefill/decode split: work per phase, the fair opponent, the break-even prompt.

What chapter 2 derives by hand before it simulates, so that page, lab and tests use one formula.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from minilab.facts.cost_terms import StepShape
from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

LEAST_BUDGET = 256
"""Tokens per step below which no production server is run."""


class Work(NamedTuple):
    """GPU seconds that one request of an experiment's workload takes in each phase."""

    prefill: float
    decode: float

    @property
    def share(self) -> float:
        """Prefill's share of the work, 0 to 1."""
        return self.prefill / (self.prefill + self.decode)

    def rate(self, gpus: float, load: float) -> float:
        """Requests/s that keep so many GPUs busy to a share of ``load``."""
        return load * gpus / (self.prefill + self.decode)


def step_seconds(experiment: Experiment, batch: int, context: int) -> float:
    """A decode step of ``batch`` streams that have ``context`` tokens each."""
    return experiment.cost_model().seconds(StepShape(batch, batch, batch * context, 0))


def prefill_seconds(experiment: Experiment, tokens: int) -> float:
    """A step that computes a prompt of ``tokens`` tokens and nothing else."""
    pairs = tokens * (tokens + 1) // 2
    return experiment.cost_model().seconds(StepShape(tokens, 1, 0, pairs))


def work(experiment: Experiment, batch: int = 32) -> Work:
    """Of a synthetic workload, if ``batch`` streams share a decode step (times ``tp`` GPUs).

    A prompt's step is charged whole; a token pays its share of a step at half its answer's length.
    """
    spec = experiment.workload
    prompt, output = spec.prompt_tokens, spec.output_tokens
    step = step_seconds(experiment, batch, prompt + output // 2)
    tp = experiment.tp
    return Work(tp * prefill_seconds(experiment, prompt), tp * (output - 1) * step / batch)


def tight_budget(experiment: Experiment, gap: float, batch: int = 32) -> int:
    """Tokens per step with which a mixed step of ``batch`` streams still fits into ``gap`` s.

    The fair opponent of a split: a server whose chunks are cut to the promise. Nine tenths of what
    fits, and at least LEAST_BUDGET.
    """
    context = experiment.workload.prompt_tokens
    plain = StepShape(batch, batch, batch * context, 0)
    chunk = StepShape(batch + 1000, batch + 1, batch * context, 1000 * context // 2)
    cost = experiment.cost_model()
    per_token = (cost.seconds(chunk) - cost.seconds(plain)) / 1000
    return max(LEAST_BUDGET, int(0.9 * (gap - cost.seconds(plain)) / per_token))


def wire_seconds_per_token(split: PdExperiment) -> float:
    """Seconds that one more prompt token adds to a transfer: its bytes and its descriptors."""
    sizer, topology = split.sizer(), split.topology()
    size = split.block_size
    many, few = sizer.size(101 * size, 101), sizer.size(size, 1)
    link = topology.between if split.apart else topology.inside
    lanes = min(split.tp, split.prefill_side().tp)
    seconds = (many.nbytes - few.nbytes) / (link.bandwidth * lanes)
    seconds += split.alpha * (many.descriptors - few.descriptors)
    return (seconds + 2 * (many.staging - few.staging)) / (100 * size)


def break_even(split: PdExperiment, batch: int = 16, context: int = 1000) -> float:
    """The prompt length above which a local prefill stalls others longer than a transfer takes.

    A local prefill adds ``f L + q L^2 / 2`` to everybody's next gap. A transfer adds ``t L`` to the
    request's own, and a decode step, for the two waits until a step ends (half a step each):

        f L + q L^2 / 2 = t L + step

    ``inf`` if there is no such length (never with attention's ``q`` above 0, only far away).

    Raises:
        InputError: a negative batch or context.
    """
    if batch < 1 or context < 0:
        raise InputError(f"break_even: batch {batch}, context {context}; 1 and 0 or more")
    linear = split.cost_model().linear()
    step = step_seconds(split, batch, context)
    q, slope = linear.per_pair, linear.per_token - wire_seconds_per_token(split)
    if not q:
        return step / slope if slope > 0 else math.inf
    return (-slope + math.sqrt(slope * slope + 2 * q * step)) / q


def pools(total: int, share: float) -> tuple[int, int]:
    """(prefill, decode) GPUs out of ``total``, in the proportion of the work, at least one each.

    Raises:
        InputError: fewer than two GPUs, or a share that is none.
    """
    if total < 2 or not 0 <= share <= 1:
        raise InputError(f"pools: {total} GPUs, share {share}; 2 or more GPUs, a share of 0 to 1")
    prefill = min(max(1, round(total * share)), total - 1)
    return prefill, total - prefill
