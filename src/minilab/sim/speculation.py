"""Speculation: how many drafts of a step are accepted, without any model.

Draft i is accepted with probability ``acceptance[i]``, given that those before it were: the
per-position vector that engines export. A step yields the accepted drafts and one token more.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from minilab.core.plan import StepOutcome, StepPlan


class Speculation:
    """An executor's answers for ``num_tokens`` drafts per request and step.

    Args:
        num_tokens: drafts per request and step (vLLM's ``num_speculative_tokens``).
        acceptance: conditional acceptance probability of each position; one number holds for all.
        seed: of the coin flips.

    ``num_drafts``, ``num_draft_tokens`` and ``num_accepted_tokens`` count as vLLM's metrics do.

    Raises:
        ValueError: fewer than 1 draft, a probability outside 0..1, or a vector of another length.
    """

    def __init__(
        self, num_tokens: int, acceptance: float | Sequence[float] = 0.7, seed: int = 0
    ) -> None:
        if num_tokens < 1:
            raise ValueError(f"num_tokens is {num_tokens}; speculation needs at least 1 draft")
        if isinstance(acceptance, (int, float)):
            acceptance = [float(acceptance)] * num_tokens
        if len(acceptance) != num_tokens:
            raise ValueError(f"{len(acceptance)} acceptance rates for {num_tokens} drafts")
        if not all(0 <= a <= 1 for a in acceptance):
            raise ValueError(f"acceptance is {list(acceptance)}; each must be from 0 to 1")
        self.num_tokens = num_tokens
        self.acceptance = list(acceptance)
        self._random = random.Random(seed).random
        self.num_drafts = self.num_draft_tokens = self.num_accepted_tokens = 0

    def execute(self, plan: StepPlan) -> StepOutcome:
        """Counts for this step and drafts for the next."""
        flip, acceptance = self._random, self.acceptance
        counts: dict[int, int] = {}
        for request_id, drafted in plan.drafts.items():
            accepted = 0
            while accepted < drafted and flip() < acceptance[accepted]:
                accepted += 1
            if accepted:
                counts[request_id] = 1 + accepted
            self.num_drafts += 1
            self.num_draft_tokens += drafted
            self.num_accepted_tokens += accepted
        drafts = dict.fromkeys(plan.decodes, self.num_tokens)
        for request, _, _ in plan.prefills:
            drafts[request.id] = self.num_tokens
        return StepOutcome(tokens=counts, drafts=drafts)


def drafting_meta(drafters: Iterable[object]) -> dict[str, Any]:
    """What a run log says of speculation: the three counters over all instances, or nothing."""
    known = [drafter for drafter in drafters if isinstance(drafter, Speculation)]
    if not known:
        return {}
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    return {"speculation": {name: sum(getattr(one, name) for one in known) for name in names}}
