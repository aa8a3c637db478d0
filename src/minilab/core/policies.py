"""Policies: how prompts and decodes share the steps of one scheduler.

Each policy fills a plan. The differences are few lines, and they decide whose latency suffers:
``prefill-first`` stalls every stream for a prompt, ``decode-first`` makes every prompt wait for
every stream, ``mixed`` bounds both by the token budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minilab.core.plan import StepPlan

if TYPE_CHECKING:
    from minilab.core.scheduler import Scheduler


def plan_mixed(scheduler: Scheduler, plan: StepPlan) -> None:
    """Decodes take their tokens of the budget, prompts share the rest (vLLM v1, Sarathi)."""
    budget = scheduler.config.max_num_batched_tokens
    if scheduler.batch.requests:
        budget -= scheduler.plan_decodes(plan, budget)
    if scheduler.prefilling or scheduler.waiting:
        scheduler.prompts.plan(plan, budget, scheduler.free_slots)


def plan_prefill_first(scheduler: Scheduler, plan: StepPlan) -> None:
    """Decodes pause while any prompt can be computed (vLLM v0, Orca)."""
    budget = scheduler.config.max_num_batched_tokens
    if scheduler.prefilling or scheduler.waiting:
        scheduler.prompts.plan(plan, budget, scheduler.free_slots)
    if not plan.prefills and scheduler.batch.requests:
        scheduler.plan_decodes(plan, budget)


def plan_decode_first(scheduler: Scheduler, plan: StepPlan) -> None:
    """No new prompt before every running request is done (FasterTransformer)."""
    budget = scheduler.config.max_num_batched_tokens
    if scheduler.batch.requests and not scheduler.prefilling:
        scheduler.plan_decodes(plan, budget)
    if plan.num_decodes:
        return
    scheduler.prompts.plan(plan, budget, 0 if scheduler.batch.requests else scheduler.free_slots)
    if not plan.prefills and scheduler.batch.requests:
        scheduler.plan_decodes(plan, budget)


PLAN_STEP: dict[str, Callable[[Scheduler, StepPlan], None]] = {
    "mixed": plan_mixed,
    "prefill-first": plan_prefill_first,
    "decode-first": plan_decode_first,
}
