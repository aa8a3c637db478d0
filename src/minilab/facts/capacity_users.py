"""The inverse question: how many GPUs do N users need, at this length and these SLOs?

A closed form, not a simulation. Each user always has one request in flight (a prompt of P tokens,
then O output tokens); b of them share an instance. Per step every user gets a token, and as each
request brings P prompt tokens for its O steps, a mean step also carries b * P / O prompt tokens:

    tpot  the mean step                    itl, stall  a step with a whole prefill chunk in it
    ttft  overhead + ceil(P / chunk) such steps; infinite where prompts outrun the chunk
    e2e   ttft + (O - 1) * tpot

b is the largest batch that fits in the KV cache and meets every limit; GPUs = ceil(N / b) * tp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from minilab.facts.capacity_limits import max_concurrency
from minilab.facts.capacity_plan import Deployment
from minilab.facts.capacity_report import capacity
from minilab.facts.cost import StepCost, StepShape
from minilab.facts.errors import InputError
from minilab.facts.slo_set import SLO

TENSOR_PARALLEL = (1, 2, 4, 8)


@dataclass(frozen=True)
class UserPlan:
    """GPUs for ``users``: instances of ``tp`` GPUs with ``per_instance`` users each.

    ``limit`` says what stops one more user: "kv", "max_num_seqs", or the SLO metric. ``expected``:
    seconds by metric at that batch.
    """

    users: int
    gpus: int
    instances: int
    tp: int
    per_instance: int
    fits_in_kv: int
    limit: str
    expected: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def plan_users(
    deployment: Deployment,
    users: int,
    slo: SLO | None,
    prompt_tokens: int,
    output_tokens: int,
    tensor_parallel: Sequence[int] = TENSOR_PARALLEL,
) -> UserPlan:
    """The fewest GPUs (of the deployment's kind) for ``users``, over the given tp.

    Raises InputError where no tp fits the model and meets the SLO even for one user; the message
    says what each fell short of.
    """
    if users < 1 or prompt_tokens < 1 or output_tokens < 1:
        raise InputError("users, prompt and output tokens must be whole numbers of 1 or more")
    if deployment.gpu is None or deployment.pp > 1:
        raise InputError("how many GPUs is asked for a GPU (--gpu) and pp=1; give those")
    best, why = None, []
    for tp in tensor_parallel:
        try:
            plan = _plan(replace(deployment, tp=tp), users, slo, prompt_tokens, output_tokens)
        except InputError as error:
            why.append(f"tp={tp}: {error}")
            continue
        if plan.per_instance == 0:
            missed = f"{plan.limit} {plan.expected.get(plan.limit, 0.0):.3g} s for one user"
            why.append(f"tp={tp}: " + (missed if plan.limit in plan.expected else "no room in KV"))
        elif best is None or plan.gpus < best.gpus:
            best = plan
    if best is None:
        raise InputError("no tp serves one user within the limits: " + "; ".join(why))
    return best


def _plan(d: Deployment, users: int, slo: SLO | None, prompt: int, output: int) -> UserPlan:
    report = capacity(d, prompt + output)
    fits = int(max_concurrency(d, report.found, prompt + output)) * d.dp
    assert d.gpu is not None
    cost = StepCost(d.model, d.gpu, d.tp, d.weight_dtype, d.kv_dtype)
    limits = dict(slo.limits) if slo else {}
    limits.setdefault("ttft", 60.0)  # a queue that grows without end serves nobody

    def missed(batch: int) -> str | None:
        seconds = expected(cost, batch, prompt, output, d.max_num_batched_tokens)
        return next((name for name, most in limits.items() if seconds[name] > most), None)

    most = min(fits, d.max_num_seqs)
    batch = _largest(most, missed)
    if batch < most:
        limit = missed(batch + 1) or "kv"
    else:
        limit = "kv" if fits <= d.max_num_seqs else "max_num_seqs"
    instances = math.ceil(users / batch) if batch else 0
    seconds = expected(cost, max(1, batch), prompt, output, d.max_num_batched_tokens)
    return UserPlan(users, instances * d.tp, instances, d.tp, batch, fits, limit, seconds)


def expected(cost: StepCost, batch: int, prompt: int, output: int, chunk: int) -> dict[str, float]:
    """Seconds by metric for ``batch`` users of one instance (see the top of this file)."""
    context = prompt + output // 2
    window = cost.model.window if cost.model.window_layers else context

    def step(prefill: int) -> float:
        pairs = prefill * (prompt + 1) // 2
        return cost.seconds(
            StepShape(batch + prefill, batch, batch * context, pairs, batch * min(context, window))
        )

    load = math.ceil(batch * prompt / output)
    mean = step(load)
    worst = step(min(prompt, chunk))
    first = cost.request_overhead + math.ceil(prompt / chunk) * worst
    if load + batch > chunk:  # prompts come faster than steps can take them: the queue grows
        first = math.inf
    whole = first + (output - 1) * mean
    return {"ttft": first, "tpot": mean, "itl": max(mean, worst), "stall": worst, "e2e": whole}


def _largest(most: int, missed: Any) -> int:
    """The largest batch up to ``most`` that misses nothing; costs never fall with the batch."""
    good, bad = 0, most + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if missed(middle):
            bad = middle
        else:
            good = middle
    return good
