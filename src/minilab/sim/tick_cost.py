"""TickCost: a step-cost model in whole ticks, with the form that lets a run be skipped.

Each coefficient is rounded to a tick once. Step times are then integers that are exactly linear in
the context, so n steps in one go and n steps one by one end at the same tick.
"""

from __future__ import annotations

from typing import Protocol

from minilab.core.plan import StepPlan
from minilab.facts.ticks import to_ticks

FOREVER = 1 << 60


class LinearCostLike(Protocol):
    """The linear form of a step cost, in seconds (``facts.cost.LinearCost``)."""

    @property
    def per_seq(self) -> float: ...
    @property
    def per_context(self) -> float: ...
    @property
    def per_window_context(self) -> float: ...
    @property
    def window(self) -> int: ...
    @property
    def per_pair(self) -> float: ...
    def per_step(self, num_tokens: int) -> float: ...


class TickCost:
    """Charges ticks for a plan; see ``core.instance.RunCost``."""

    __slots__ = ("_context", "_linear", "_pair", "_seq", "_step", "_window", "_window_context")

    def __init__(self, linear: LinearCostLike) -> None:
        self._linear = linear
        self._seq = to_ticks(linear.per_seq)
        self._context = to_ticks(linear.per_context)
        self._pair = to_ticks(linear.per_pair)
        self._window = linear.window
        self._window_context = to_ticks(linear.per_window_context)
        self._step: dict[int, int] = {}

    def run(self, plan: StepPlan) -> tuple[int, int, int]:
        """(ticks of the first step, ticks each further one adds, steps for which that holds)."""
        batch = plan.num_decodes
        prefills = plan.prefills
        tokens = batch + plan.num_draft_tokens + plan.num_prefill_tokens
        step = self._step.get(tokens)
        if step is None:
            # At least one tick, so that a run always ends later than it starts.
            step = self._step[tokens] = max(1, to_ticks(self._linear.per_step(tokens)))
        first = step + self._seq * (batch + len(prefills)) + self._context * plan.context
        slope = self._context * batch
        valid = FOREVER
        for _, start, n in prefills:
            first += self._pair * (n * start + n * (n + 1) // 2)
        if self._window and batch:
            context, growing, valid = self._windowed(plan)
            first += self._window_context * context
            slope += self._window_context * growing
        return first, slope, valid

    def _windowed(self, plan: StepPlan) -> tuple[int, int, int]:
        """KV tokens inside the window, sequences still below it, steps until one reaches it."""
        window = self._window
        context = growing = 0
        valid = FOREVER
        for request in plan.decodes.values():
            length = plan.context_of(request)
            if length < window:
                context += length
                growing += 1
                valid = min(valid, window - length)
            else:
                context += window
        return context, growing, valid
