"""choose: every stack judged, the simplest of the good ones recommended, and where that flips."""

import math
from typing import Any

from minilab.judge.selector.room import SIZES, kv_tokens, least_tp
from minilab.judge.selector.server import Bench
from minilab.judge.selector.stack import Stack, candidates

TIE = 0.03
"""Goodput within this share of the best counts as equal: then the simpler stack wins."""

COST = {
    "chunked_prefill": 1.0,
    "prefix_routing": 1.0,
    "fp8_kv": 2.0,
    "w8a8": 2.0,
    "int4": 2.5,
    "spec_decode": 3.0,
    "pd_split": 4.0,
}
"""How much a lever asks of the people who run it; only the order matters."""


class Choice:
    """The recommendation.

    Attributes:
        best: the verdict of the recommended stack; plain: of the stack that is set now.
        all: the verdicts of every stack, best first.
        bench: the deployment on which they were compared.
    """

    def __init__(self, best: Any, plain: Any, all: list[Any], bench: Any) -> None:
        self.best = best
        self.plain = plain
        self.all = all
        self.bench = bench


def deployment(tables: Any, settings: Any) -> Any:
    """(tp, instances): the smallest tp that holds one request of the published format, as often as
    the GPUs allow; (0, 0) if it fits nowhere."""
    tokens = settings.prompt + settings.output
    tp = least_tp(tables, settings.model, settings.gpu, "native", "bf16", 4.0 * tokens)
    if not tp:
        tp = least_tp(tables, settings.model, settings.gpu, "native", "bf16", tokens)
    if not tp:
        return 0, 0
    if settings.gpus:
        while tp > settings.gpus and tp > 1:
            tp //= 2
        if not kv_tokens(tables, settings.model, settings.gpu, tp, "native", "bf16"):
            return 0, 0
        return tp, max(1, int(settings.gpus) // tp)
    return tp, 1


def effort(stack: Any) -> float:
    """What running a stack asks of people."""
    return sum([COST[lever] for lever in stack.levers()])


def bench_of(tables: Any, settings: Any) -> Any:
    """The deployment of these settings; None where the model does not fit."""
    tp, instances = deployment(tables, settings)
    if not tp:
        return None
    if settings.layout == "split" and instances < 2:
        instances = 2
    return Bench(tables, settings, tp, instances)


def stack_now(settings: Any) -> Stack:
    """The stack that is set."""
    return Stack(settings.layout, settings.weight_dtype, settings.kv_dtype, 0, False)


def choose_now(tables: Any, settings: Any) -> Any:
    """The verdict on the stack that is set; None where the model does not fit."""
    bench = bench_of(tables, settings)
    return None if bench is None else bench.judge(stack_now(settings))


def choose(tables: Any, settings: Any) -> Any:
    """Judge all stacks; None where the model does not fit."""
    bench = bench_of(tables, settings)
    if bench is None:
        return None
    shared = settings.shared_tokens() > 0
    found = []
    for stack in candidates(bench.instances > 1, shared):
        if settings.acceptance <= 0 and stack.drafts:
            continue
        found.append(bench.judge(stack))
    plain = bench.judge(stack_now(settings))
    return Choice(_simplest(found, plain), plain, _sorted(found), bench)


def _merit(verdict: Any) -> float:
    """Goodput; where nothing is good, far below any goodput, what could be served with gaps that
    keep their limit: that is what admission control would save."""
    if verdict.attainment > 0.02:
        return float(verdict.goodput_per_gpu)
    return float(1e-6 * verdict.capacity * (0.01 + verdict.within) / verdict.gpus)


def _sorted(found: list[Any]) -> list[Any]:
    return sorted(found, key=lambda verdict: -_merit(verdict))


def _simplest(found: list[Any], plain: Any) -> Any:
    everyone = [plain]
    everyone.extend(found)
    top = max([_merit(verdict) for verdict in everyone])
    best, least = plain, math.inf
    for verdict in everyone:
        cost = effort(verdict.stack)
        if _merit(verdict) >= (1.0 - TIE) * top and cost < least:
            best, least = verdict, cost
    return best


def flip(tables: Any, settings: Any, name: str, low: float, high: float, lever: str) -> Any:
    """(value, used_above): where the recommendation begins or ends to use ``lever`` as ``name``
    goes from ``low`` to ``high``; (None, None) if it never changes."""
    steps = 8
    before = None
    for at in range(steps + 1):
        value = low * (high / low) ** (at / steps) if low > 0 else low + (high - low) * at / steps
        now = _uses(tables, settings.with_value(name, value), lever)
        if before is not None and now != before[1]:
            return _bisect(tables, settings, name, before, value, lever), now
        before = (value, now)
    return None, None


def _bisect(
    tables: Any,
    settings: Any,
    name: str,
    before: Any,
    above: float,
    lever: str,
) -> float:
    low, used = before
    high = above
    for _ in range(6):
        middle = float(low + high) / 2.0
        if _uses(tables, settings.with_value(name, middle), lever) == used:
            low = middle
        else:
            high = middle
    return float(low + high) / 2.0


def _uses(tables: Any, settings: Any, lever: str) -> bool:
    found = choose(tables, settings)
    return found is not None and lever in found.best.stack.levers()


def sizes() -> list[Any]:
    """Tensor-parallel sizes that are tried."""
    return SIZES
