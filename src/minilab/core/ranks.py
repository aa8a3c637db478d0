"""Data-parallel attention: several schedulers that share one clock.

In a DP-attention deployment (DeepSeek with expert parallelism) each rank has its own requests and
its own KV pool, but the expert layers synchronise all ranks, so a step lasts as long as its slowest
rank. To everyone outside, the group looks like one scheduler with one cost.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any

from minilab.core.instance import Instance, RunCost
from minilab.core.plan import StepOutcome, StepPlan, StepResult
from minilab.core.request import RequestState
from minilab.core.scheduler import Scheduler


class RankedPlan(StepPlan):
    """One step of all ranks: ``ranks`` holds their plans, the other fields their sums."""

    def __init__(self, ranks: Sequence[StepPlan]) -> None:
        self.ranks = ranks
        self.prefills = [chunk for plan in ranks for chunk in plan.prefills]
        self.decodes = ChainMap(*(dict(plan.decodes) for plan in ranks))
        self.num_decodes = sum(plan.num_decodes for plan in ranks)
        self.context = sum(plan.context for plan in ranks)
        self.num_prefill_tokens = sum(plan.num_prefill_tokens for plan in ranks)
        self.drafts = {k: v for plan in ranks for k, v in plan.drafts.items()}
        self.num_draft_tokens = sum(plan.num_draft_tokens for plan in ranks)
        self.admitted = [request for plan in ranks for request in plan.admitted]
        self.preempted = [request for plan in ranks for request in plan.preempted]
        self.num_waiting = sum(plan.num_waiting for plan in ranks)


class _Pools:
    """The ranks' pools as one, for load figures."""

    def __init__(self, pools: Sequence[Any]) -> None:
        self._pools = pools

    @property
    def used(self) -> int:
        return sum(pool.used for pool in self._pools)

    @property
    def num_blocks(self) -> int:
        return sum(pool.num_blocks for pool in self._pools)

    @property
    def num_cached(self) -> int:
        return sum(pool.num_cached for pool in self._pools)


class RankedScheduler:
    """``ranks`` schedulers in step; a new request goes to the rank with the fewest.

    Raises:
        ValueError: no rank, or a policy other than ``mixed``: with the others one rank's decodes
            may pause in a step in which another's go on, and a shared record of steps would lie.
    """

    def __init__(self, ranks: Sequence[Scheduler]) -> None:
        if not ranks:
            raise ValueError("a ranked scheduler needs at least 1 rank, got 0")
        for rank in ranks:
            if rank.config.policy != "mixed":
                raise ValueError(f"policy is {rank.config.policy!r}; ranks need 'mixed'")
        self.ranks = list(ranks)
        self.pool = _Pools([rank.pool for rank in ranks])
        self._rank_of: dict[int, Scheduler] = {}

    @property
    def num_running(self) -> int:
        """Requests with a running slot, on all ranks."""
        return sum(rank.num_running for rank in self.ranks)

    @property
    def num_waiting(self) -> int:
        """Queued requests, on all ranks."""
        return sum(rank.num_waiting for rank in self.ranks)

    @property
    def num_preemptions(self) -> int:
        """Preemptions so far, on all ranks."""
        return sum(rank.num_preemptions for rank in self.ranks)

    @property
    def peak_used(self) -> int:
        """Sum of the ranks' own peaks (they need not fall together)."""
        return sum(rank.peak_used for rank in self.ranks)

    @property
    def accepts_now(self) -> bool:
        """Whether a new request could change the next step."""
        return self._emptiest().accepts_now

    def _emptiest(self) -> Scheduler:
        return min(self.ranks, key=lambda rank: rank.num_running + rank.num_waiting)

    def add(self, request: RequestState) -> bool:
        """Queue a request on the rank with the fewest; False if no pool could hold it."""
        rank = self._emptiest()
        self._rank_of[request.id] = rank
        return rank.add(request)

    def abort(self, request: RequestState) -> None:
        """Forget a request and take its blocks back."""
        self._rank_of[request.id].abort(request)

    @property
    def num_decoding(self) -> int:
        """Requests whose stream has begun, on all ranks."""
        return sum(rank.num_decoding for rank in self.ranks)

    def pending_tokens(self) -> int:
        """Known tokens that no step has computed, on all ranks."""
        return sum(rank.pending_tokens() for rank in self.ranks)

    def tokens_in_flight(self, steps_over: int = 0) -> int:
        """KV tokens of running requests, on all ranks."""
        return sum(rank.tokens_in_flight(steps_over) for rank in self.ranks)

    def blocks_in_use(self, steps_begun: int = 1) -> int:
        """KV blocks in use, on all ranks."""
        return sum(rank.blocks_in_use(steps_begun) for rank in self.ranks)

    def match(self, request: RequestState, steps_begun: int = 1) -> int:
        """Most tokens of ``request`` that one rank could serve from its cache."""
        return max(rank.match(request, steps_begun) for rank in self.ranks)

    def schedule(self) -> RankedPlan:
        """One step of every rank."""
        return RankedPlan([rank.schedule() for rank in self.ranks])

    def repeats(self, plan: StepPlan) -> int:
        """Steps until any rank's plan changes."""
        assert isinstance(plan, RankedPlan)
        busy = [
            rank.repeats(part) for rank, part in zip(self.ranks, plan.ranks, strict=True) if part
        ]
        return min(busy, default=1)

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        """Commit on every rank."""
        assert isinstance(plan, RankedPlan)
        results = [
            rank.update(part, _share(outcome, rank), steps)
            for rank, part in zip(self.ranks, plan.ranks, strict=True)
        ]
        return StepResult(
            [request for result in results for request in result.started],
            [request for result in results for request in result.finished],
            sum(result.used_blocks for result in results),
        )


def _share(outcome: StepOutcome, rank: Scheduler) -> StepOutcome:
    """The part of ``outcome`` that concerns requests of ``rank``."""
    if not (outcome.tokens or outcome.drafts):
        return outcome
    mine = rank.batch.requests
    return StepOutcome(
        tokens={k: v for k, v in outcome.tokens.items() if k in mine},
        drafts=outcome.drafts,
        finished=outcome.finished,
    )


class RankedCost:
    """A step lasts as long as its slowest rank."""

    def __init__(self, cost: RunCost) -> None:
        self._cost = cost

    def run(self, plan: StepPlan) -> tuple[int, int, int]:
        """See ``RunCost``; the run ends where another rank becomes the slowest."""
        assert isinstance(plan, RankedPlan)
        lines = [self._cost.run(part) for part in plan.ranks if part]
        first, slope, _ = max(lines)
        valid = min(line[2] for line in lines)
        for other_first, other_slope, _ in lines:
            if other_slope > slope:
                valid = min(valid, (first - other_first) // (other_slope - slope) + 1)
        return first, slope, valid


def ranked_instance(
    schedulers: Sequence[Scheduler], cost: RunCost, *, skip: bool = True
) -> Instance:
    """An instance of several ranks with one clock."""
    return Instance(RankedScheduler(schedulers), RankedCost(cost), skip=skip)
