"""Draft tokens: which guesses fit into a step, and what verified ones do to the decode batch.

A step with drafts is not lockstep: each request moves by its own count. The batch is told by
shifting the request's offset, so the rest of the scheduler need not know about speculation.
"""

from __future__ import annotations

from minilab.core.decode_batch import DecodeBatch
from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import RequestState


def affordable_drafts(batch: DecodeBatch, budget: int) -> dict[int, int]:
    """Drafts to verify in the next step, by request id, and the blocks for them taken.

    A guess is optional work: every request gets its one token first, and drafts share what is left
    of the token budget in order. A draft beyond the request's last token is cut. If the blocks for
    all of them are not there, none is made: a guess never costs another request its blocks.
    """
    size, clock = batch.block_size, batch.clock
    left = budget - len(batch.requests)
    drafts: dict[int, int] = {}
    needs: list[tuple[RequestState, int]] = []
    total = 0
    for request in batch.requests.values():
        count = min(request.num_draft_tokens, left, request.last - clock - 1)
        if count > 0:
            drafts[request.id] = count
            left -= count
        else:
            count = 0
        end = request.offset + clock + 1 + count
        need = -(-end // size) - len(request.block_table)
        if need > 0:
            needs.append((request, need))
            total += need
    if not drafts or total > batch.pool.available:
        return {}
    for request, need in needs:
        request.block_table += batch.pool.take(need)
    return drafts


def commit_counts(batch: DecodeBatch, plan: StepPlan, outcome: StepOutcome) -> list[RequestState]:
    """Apply token counts other than 1; returns requests that ended before their limit.

    Raises:
        ValueError: a count that the plan did not allow (below 0, or above 1 + its drafts).
    """
    requests, tokens = batch.requests, outcome.tokens
    for request_id, count in tokens.items():
        shifted = requests.get(request_id)
        if shifted is None or count == 1:
            continue
        if not 0 <= count <= 1 + plan.drafts.get(request_id, 0):
            raise ValueError(
                f"request {request_id} yielded {count} tokens; the plan allows 0 to "
                f"{1 + plan.drafts.get(request_id, 0)}"
            )
        batch.shift(shifted, count - 1)
        if not count:
            batch.trim(shifted)
    for request_id, drafted in plan.drafts.items():
        request = requests[request_id]
        request.num_draft_tokens = 0
        if tokens.get(request_id, 1) <= drafted:
            batch.trim(request)
    ended = [batch.requests[i] for i in outcome.finished if i in batch.requests]
    for request in ended:
        batch.remove(request)
    return ended


def note_drafts(batch: DecodeBatch, outcome: StepOutcome) -> bool:
    """Keep the drafts proposed for the next step; whether there are any."""
    for request_id, count in outcome.drafts.items():
        request = batch.requests.get(request_id)
        if request is not None:
            request.num_draft_tokens = count
    return bool(outcome.drafts)
