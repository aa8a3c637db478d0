"""ShortestPromptFirst: a policy of one's own in twenty lines, to be judged in chapter and lab 0."""

from __future__ import annotations

from collections import Counter, deque

from minilab.core.config import SchedulerConfig
from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.plan import StepPlan
from minilab.core.request import RequestState


class ShortestPromptFirst(PlainScheduler):
    """The shortest waiting prompt first, but nobody waits for ever."""

    patience = 40

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self.passed: Counter[int] = Counter()

    def schedule(self) -> StepPlan:
        """Sort the queue, plan as ever, and note who was passed over."""
        self.waiting = deque(sorted(self.waiting, key=self.rank))
        plan = super().schedule()
        for late in plan.admitted:
            self.passed.update(r.id for r in self.waiting if r.id < late.id)
        return plan

    def rank(self, request: RequestState) -> tuple[int, int]:
        """Who lost its blocks, who waited too long, the shortest."""
        if request.num_preemptions:
            return 0, 0
        if self.passed[request.id] >= self.patience:
            return 1, request.id
        return 2, request.num_prompt_tokens
