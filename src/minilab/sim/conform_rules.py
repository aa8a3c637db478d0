"""The rules of conformance, each in a sentence, and for each way to break one what is likely wrong.

The rules hold for any policy. The last two are promises that a class makes of itself (``claims``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

RULES: dict[str, str] = {
    "interface": "it has what an instance asks for, and returns what was agreed",
    "raises": "it raises nothing of its own",
    "admission": "it refuses a request exactly if the pool could never hold it",
    "budget": "a step computes at most max_num_batched_tokens tokens",
    "slots": "at most max_num_seqs requests run",
    "plan": "a plan adds up, and names who came in and who lost its blocks",
    "causality": "a step computes what is known and not computed yet, and nothing else",
    "blocks": "a block has one owner unless its text is shared; free + used is the pool",
    "kv": "what a step reads is what was computed for that very text and salt",
    "tokens": "each request gets the tokens it asked for, and ends then",
    "returned": "who waits or has ended holds no blocks",
    "progress": "while somebody waits or runs a step is planned, and it all ends",
    "starvation": "nobody is overtaken by more than 50 requests that came later",
    "repeats": "a plan that is said to repeat gives the same run as step by step",
    "fcfs": "claimed: requests are admitted in the order in which they came",
    "plain": "claimed: the run is that of PlainScheduler, to the last gap",
}
CLAIMS = ("fcfs", "plain")
MOST_OVERTAKEN = 50

LIKELY: dict[str, str] = {
    "interface.lacks": "core.instance.SchedulerLike lists what an instance needs",
    "interface.add": "return True if it was queued, else False",
    "interface.plan": "schedule returns a StepPlan, an empty one included",
    "interface.update": "return StepResult(started, finished, used_blocks)",
    "interface.status": "set request.status",
    "interface.counts": "routers read it: count your lists. Does one that has ended stay in them?",
    "raises.take": "ask pool.available before you take, and preempt if there are too few",
    "raises.other": "",
    "admission.kept": "it can never end: refuse it, else it waits, or lacks blocks, for ever",
    "admission.refused": "blocks in use come back; and the last token's KV is never written, so "
    "prompt + output - 1 tokens are to be held",
    "budget.decodes": "the decodes are not taken off the budget before the prompts get theirs",
    "budget.chunks": "each chunk may use the whole budget: take off what earlier ones use",
    "slots.many": "those still in their prompt have a slot too",
    "plan.preempted": "only who holds blocks can lose them",
    "plan.unsaid": "put whoever loses its blocks into plan.preempted",
    "plan.again": "take it out of the queue when it is admitted",
    "plan.stranger": "name it in plan.admitted when it leaves the queue, after a preemption too",
    "plan.twice": "a request decodes or has one chunk: it leaves one list when it enters the other",
    "plan.empty": "leave a request out when the budget is used up",
    "plan.key": "key plan.decodes by request id",
    "plan.sums": "the step's time is charged by these sums",
    "plan.drafts": "nobody proposed any: leave drafts empty",
    "causality.gone": "take it out of the queue and of your lists when it ends or is aborted",
    "causality.restart": "after a preemption all is computed again: num_computed_tokens is back at "
    "0, or at the end of whole cached blocks",
    "causality.skipped": "tokens are skipped that nobody computed",
    "causality.repeated": "tokens are computed twice: a chunk starts at num_computed_tokens",
    "causality.beyond": "a chunk ends with the last token there is: min(num_tokens - "
    "num_computed_tokens, budget)",
    "causality.early": "it decodes once all but its newest token are computed; after a preemption "
    "it is in its prompt again",
    "blocks.short": "take a block before the step whose token no longer fits into the last one",
    "blocks.number": "take blocks from the pool",
    "blocks.given": "a block went back to the pool while a table still had it",
    "blocks.sum": "a block is in two places, or in none",
    "blocks.pool": "a block was taken, shared or given back without the pool's own methods",
    "blocks.shared": "a shared block is only read: the next token goes to a block of its own",
    "kv.nothing": "was a block published, or counted as computed, before its step was over?",
    "kv.other": "was the block given away while in use, or does its hash leave out what comes "
    "before it?",
    "kv.salt": "the salt belongs into the hash, or one tenant reads the other's cache",
    "tokens.missed": "the step that ends the prompt yields the first token: count it",
    "tokens.count": "the record counts by num_output_tokens: one more for each token",
    "tokens.early": "only a step that computes the last known token yields one",
    "tokens.started": "started are those whose last chunk this was, after a preemption too",
    "returned.held": "release its blocks, and empty block_table",
    "returned.waits": "it holds blocks: name it in plan.admitted, or, if it lost them, empty its "
    "block_table",
    "returned.lost": "release blocks before the table is emptied: at the end, at a preemption and "
    "at an abort",
    "progress.idle": "when nobody runs all blocks are free, so the head of the queue fits; when "
    "somebody runs, it must go on",
    "progress.endless": "do requests take each other's blocks in turn, and begin again?",
    "progress.stuck": "a loop waits for something that nothing in it changes",
    "starvation.overtaken": "a policy that prefers some needs a bound: who was passed over too "
    "often goes first",
    "repeats.differs": "a plan repeats until the first request ends or a block is missing; 1 is "
    "always right",
    "fcfs.order": "admit from the head of the queue, and wait when the head does not fit",
    "plain.differs": "drop the claim if the policy is meant to differ",
}
"""By rule and case: what a learner should look at first."""


class BrokenRule(Exception):  # noqa: N818 (a finding about somebody's class, not an error of ours)
    """A rule is broken: which, what was seen, and what is likely wrong (empty, never guessed)."""

    def __init__(self, case: str, what: str) -> None:
        super().__init__(what)
        self.rule, self.what, self.likely = case.partition(".")[0], what, LIKELY[case]


class Stuck(BaseException):
    """A call does not return. No Exception, so that ``except Exception`` does not swallow it."""


def broken(case: str, what: str) -> NoReturn:
    """Raise BrokenRule for one of LIKELY's cases."""
    raise BrokenRule(case, what)


def ids(requests: Iterable[object]) -> str:
    """ "1, 2 and 5", or "none"; of requests or of their ids."""
    found = [str(getattr(request, "id", request)) for request in requests]
    if len(found) < 2:
        return "".join(found) or "none"
    return f"{', '.join(found[:-1])} and {found[-1]}"
