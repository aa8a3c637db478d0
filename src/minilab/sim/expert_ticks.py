"""ExpertTicks: ticks for a step of several attention ranks that share their experts.

Each rank has its own tokens, context and prefill; the experts see the tokens of all, and the
exchange waits for the rank with most. So a step is the slowest rank's own part plus the shared one.
"""

from __future__ import annotations

from dataclasses import replace

from minilab.core.plan import StepPlan
from minilab.core.ranks import RankedCost, RankedPlan
from minilab.facts.expert_cost import ExpertCost
from minilab.facts.ticks import to_seconds, to_ticks
from minilab.sim.tick_cost import FOREVER, TickCost


class ExpertTicks:
    """Charges a ``RankedPlan``; see ``core.instance.RunCost``."""

    def __init__(self, cost: ExpertCost) -> None:
        self._cost = cost
        self._own = RankedCost(TickCost(replace(cost.linear(), work=None)))
        self._experts: dict[int, int] = {}
        self._exchange: dict[int, int] = {}

    def run(self, plan: StepPlan) -> tuple[int, int, int]:
        """(ticks of the first step, ticks each further one adds, steps for which that holds)."""
        assert isinstance(plan, RankedPlan), "several ranks make ranked plans"
        first, slope, valid = self._own.run(plan)
        counts = [_tokens(part) for part in plan.ranks if part]
        total, most = sum(counts), max(counts)
        compute = first + self._shared(total)
        if not self._cost.overlap:
            return compute + self._wire(most), slope, valid
        compute += to_ticks(self._cost.again(total))
        wire = to_ticks(self._cost.on_the_wire(most))
        if compute >= wire or not slope:
            return max(compute, wire), slope, valid
        # The wire is the longer one until the growing context makes compute pass it.
        return wire, 0, min(valid, (wire - compute) // slope + 1, FOREVER)

    def _shared(self, total: int) -> int:
        found = self._experts.get(total)
        if found is None:
            found = self._experts[total] = to_ticks(sum(self._cost.work.experts(total)))
        return found

    def _wire(self, most: int) -> int:
        found = self._exchange.get(most)
        if found is None:
            found = self._exchange[most] = to_ticks(sum(self._cost.work.exchange(most)))
        return found

    def seconds(self, plan: StepPlan) -> float:
        """The first step of ``run`` in seconds."""
        return to_seconds(self.run(plan)[0])


def _tokens(plan: StepPlan) -> int:
    return plan.num_decodes + plan.num_draft_tokens + plan.num_prefill_tokens
