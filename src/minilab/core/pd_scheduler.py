"""UnyieldingScheduler: a decode engine that never gives blocks back, and so can get stuck.

An engine that cannot recompute a prompt (a pure decode worker) has no way to preempt. If it hands
out its blocks to reservations as long as there are any, running requests may all come to need one
more block when none is left, and then nothing ever finishes. It exists to show that; ``Scheduler``
preempts instead, and the oldest request always gets through.
"""

from __future__ import annotations

from minilab.core.block_hash import BlockHasher
from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepPlan
from minilab.core.prompt_queue import PromptQueue, TierConnector
from minilab.core.request import RequestState
from minilab.core.scheduler import Scheduler


class UnyieldingScheduler(Scheduler):
    """A request that needs a block when there is none keeps what it has and waits.

    It waits among the prompts with one token to compute, as if it had just come back, and goes on
    as soon as its blocks suffice: at once if it was not the one that needed a new one, else when
    somebody has finished.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        hasher: BlockHasher | None = None,
        tiers: TierConnector | None = None,
    ) -> None:
        super().__init__(config, hasher, tiers)
        self.prompts = _PatientQueue(
            config, self.pool, self.index, self._preempt_newest, self.remote.receiving, tiers
        )
        self.waiting = self.prompts.waiting
        self.prefilling = self.prompts.prefilling

    def _preempt_newest(self, plan: StepPlan) -> RequestState:
        """Set the newest decoding request aside, blocks and all."""
        request = self.batch.newest()
        self.batch.remove(request)
        self.prefilling.append(request)
        plan.preempted = [*plan.preempted, request]
        return request


class _PatientQueue(PromptQueue):
    """Prompts that wait for blocks instead of taking them from others."""

    def _make_room(self, request: RequestState, num_tokens: int, plan: StepPlan) -> bool:
        need = -(-num_tokens // self._size) - len(request.block_table)
        if need > self._pool.available:
            return False
        request.block_table += self._pool.take(need)
        return True
