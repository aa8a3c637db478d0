"""Scheduler: who computes what in the next step. The same object drives simulator and engine.

It holds no tensors, no time and no token ids. A step has a token budget; running requests come
first, then waiting ones in order of arrival; a prompt may be computed in chunks that share a step
with decodes. When blocks run out, the newest request gives its own back and recomputes later.
"""

from __future__ import annotations

from minilab.core.block_hash import BlockHasher
from minilab.core.config import SchedulerConfig
from minilab.core.decode_batch import DecodeBatch
from minilab.core.drafts import affordable_drafts, commit_counts, note_drafts
from minilab.core.plan import PLAIN, StepOutcome, StepPlan, StepResult
from minilab.core.policies import PLAN_STEP
from minilab.core.prefix_indexes import make_index
from minilab.core.prompt_queue import PromptQueue, TierConnector
from minilab.core.remote_kv import RemoteKV
from minilab.core.request import (
    ABORTED,
    FINISHED,
    HELD,
    PREEMPTED,
    REJECTED,
    RequestState,
)
from minilab.core.scheduler_figures import SchedulerFigures


class Scheduler(SchedulerFigures):
    """Continuous batching over a paged KV pool, with prefix cache and preemption by recompute.

    Attributes:
        waiting: the queue; preempted requests go to its front.
        prefilling: running requests whose prompt is not done, in order of admission.
        prompts: owns these two and decides who joins the step.
        batch: running requests that decode.
        tiers: where KV blocks go when they leave the pool, if anywhere.
        remote: requests whose KV is on its way in or out.
        peak_used: most blocks in use at once so far.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        hasher: BlockHasher | None = None,
        tiers: TierConnector | None = None,
    ) -> None:
        self.config = config
        self.tiers = tiers
        self.pool, self.index = make_index(config, hasher)
        self.batch = DecodeBatch(self.pool, config.block_size)
        self.remote = RemoteKV(self)
        self.prompts = PromptQueue(
            config, self.pool, self.index, self._preempt_newest, self.remote.receiving, tiers
        )
        self.waiting = self.prompts.waiting
        self.prefilling = self.prompts.prefilling
        self.num_preemptions = 0
        self.peak_used = 0
        self._drafting = False
        self._plan_step = PLAN_STEP[config.policy]

    def use_tiers(self, tiers: TierConnector) -> None:
        """Let blocks that leave the pool live on in ``tiers``, from now on."""
        self.tiers = self.prompts.tiers = tiers

    # -- requests come and go -------------------------------------------------------------------

    def add(self, request: RequestState) -> bool:
        """Queue ``request``; False, with status REJECTED, if the pool could never hold it."""
        if not self.fits(request):
            request.status = REJECTED
            return False
        self.waiting.append(request)
        return True

    def reserve(self, request: RequestState) -> bool:
        """Take blocks for a request whose KV comes from elsewhere; False: no room now."""
        return self.remote.reserve(request)

    def abort(self, request: RequestState) -> None:
        """Forget ``request`` wherever it stands and take its blocks back."""
        if request.decoding:
            self.batch.remove(request)
        elif request in self.prefilling:
            self.prefilling.remove(request)
        elif not self.remote.drop(request) and request in self.waiting:
            self.waiting.remove(request)
        self.index.release(request)
        request.status = ABORTED

    # -- one step -------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Plan the next step and take its blocks. A false plan means nothing can be done now."""
        plan = StepPlan()
        if self.remote.ready:
            self.remote.admit(plan)
        self._plan_step(self, plan)
        while self.remote.ready and plan.preempted and not plan:
            # The only running request gave up its own blocks: its slot goes to one that has some.
            self.remote.admit(plan)
            self._plan_step(self, plan)
        plan.num_waiting = len(self.waiting)
        return plan

    def repeats(self, plan: StepPlan) -> int:
        """How many steps would come out like ``plan`` if nothing happened outside.

        Only plain decoding repeats: until the first request finishes, or the pool has no block left
        for the next step. A queue head that did not fit now will not fit in between either: while
        nobody finishes, blocks only get fewer and nothing new is published.
        """
        if plan.prefills or plan.drafts or plan.preempted or not plan.num_decodes:
            return 1
        return self.batch.steps_to_go(self.pool.available)

    def update(self, plan: StepPlan, outcome: StepOutcome = PLAIN, steps: int = 1) -> StepResult:
        """Commit ``steps`` steps like ``plan`` (more than 1 only if ``repeats`` allowed it)."""
        batch, pool = self.batch, self.pool
        decoded = plan.num_decodes
        if decoded:
            batch.advance(steps)
        used = pool.num_blocks - len(pool.blank) - pool.num_idle
        if used > self.peak_used:
            self.peak_used = used
        finished: list[RequestState] = []
        if decoded:
            if plan.drafts or outcome is not PLAIN:
                finished = commit_counts(batch, plan, outcome)
            finished += batch.pop_finished()
            for request in finished:
                self._finish(request)
        started = self._commit_prefills(plan, outcome, finished) if plan.prefills else ()
        if outcome is not PLAIN:
            self.remote.commit(outcome)
            self._drafting = note_drafts(batch, outcome)
        return StepResult(started, finished, used)

    # -- planning -------------------------------------------------------------------------------

    def plan_decodes(self, plan: StepPlan, budget: int) -> int:
        """Put every decoding request into the plan; returns the tokens of the budget it takes."""
        batch, pool = self.batch, self.pool
        if self._drafting:
            plan.drafts = affordable_drafts(batch, budget)
        if not plan.drafts:
            while (due := batch.due()) and due > pool.available:
                self._preempt_newest(plan)
            if due:
                batch.open_blocks(batch.clock)
        plan.decodes = batch.requests
        plan.num_decodes = count = len(batch.requests)
        plan.context = batch.kv_tokens + count
        plan.clock = batch.clock
        if plan.drafts:
            plan.num_draft_tokens = sum(plan.drafts.values())
        return count + plan.num_draft_tokens

    # -- committing -----------------------------------------------------------------------------

    def _commit_prefills(
        self, plan: StepPlan, outcome: StepOutcome, finished: list[RequestState]
    ) -> list[RequestState]:
        """Count the chunks; returns who got a token and adds who is done to ``finished``."""
        started: list[RequestState] = []
        for request, start, chunk in plan.prefills:
            request.num_computed_tokens = computed = start + chunk
            if self.index.enabled:
                self.index.publish(request)
            if computed < request.num_prompt_tokens + request.num_output_tokens:
                continue
            self.prefilling.remove(request)
            if self.tiers is not None:
                self.tiers.save(request)
            request.num_output_tokens += 1
            started.append(request)
            done = request.num_output_tokens >= request.max_tokens
            if done or request.id in outcome.finished:
                self._finish(request)
                finished.append(request)
            else:
                self.batch.add(request)
        return started

    def _preempt_newest(self, plan: StepPlan) -> RequestState:
        """Take all blocks of the newest running request; it recomputes them when it returns."""
        if self.prefilling:
            request = self.prefilling.pop()
        else:
            request = self.batch.newest()
            self.batch.remove(request)
        self.index.publish_generated(request)
        if self.tiers is not None:
            self.tiers.save(request)
        self.index.release(request)
        request.status = PREEMPTED
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(request)
        plan.preempted = [*plan.preempted, request]
        return request

    def _finish(self, request: RequestState) -> None:
        self.index.publish_generated(request)
        if self.tiers is not None:
            self.tiers.save(request)
        if request.hold_blocks:
            request.status = HELD
            self.remote.hold(request)
        else:
            self.index.finish(request)
            request.status = FINISHED
