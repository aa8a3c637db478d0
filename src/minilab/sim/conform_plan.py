"""Is a plan one that could be carried out? Judged by a ledger that the scheduler does not keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepPlan
from minilab.core.request import RequestState
from minilab.sim.conform_memory import Work
from minilab.sim.conform_rules import broken, ids

PLAN_FIELDS = (
    *("prefills", "decodes", "num_decodes", "context", "num_prefill_tokens", "drafts"),
    *("admitted", "preempted", "num_waiting"),
)


@dataclass(slots=True, eq=False)
class Entry:
    """What the ledger knows of one request that has not ended.

    ``fresh``: admitted, and no chunk seen yet, which may begin behind a cached prefix.
    """

    request: RequestState
    running: bool = False
    fresh: bool = False
    admitted: bool = False
    computed: int = 0
    produced: int = 0
    overtaken: int = 0

    @property
    def known(self) -> int:
        """Tokens there are: the prompt and what came out."""
        return self.request.num_prompt_tokens + self.produced


Ledger = dict[int, Entry]


def check_plan(plan: StepPlan, config: SchedulerConfig, live: Ledger) -> list[Work]:
    """What the step computes, request by request; the ledger notes who came and who lost blocks.

    Raises Broken with the first rule that the plan breaks.
    """
    for name in PLAN_FIELDS:
        if not hasattr(plan, name):
            broken("interface", f"schedule returned {plan!r}, which has no {name}",
                   "return a StepPlan")  # fmt: skip
    _note_preempted(plan, live)
    _check_kept(config, live)
    _note_admitted(plan, live)
    work = [*_chunks(plan, config, live), *_decodes(plan, live)]
    _once(work)
    _limits(plan, config, live, work)
    _adds_up(plan, work)
    _tables(config, work)
    return work


def _note_preempted(plan: StepPlan, live: Ledger) -> None:
    for request in plan.preempted:
        entry = live.get(request.id)
        if entry is None or not entry.running:
            broken("plan", f"request {request.id} is preempted and was not running",
                   "only who holds blocks can lose them")  # fmt: skip
        entry.running, entry.computed = False, 0
        if request.block_table:
            broken("returned", f"request {request.id} was preempted and still holds blocks "
                   f"{request.block_table}", "release them, and empty block_table")  # fmt: skip


def _check_kept(config: SchedulerConfig, live: Ledger) -> None:
    """Who runs has kept its blocks; who waits has none, unless it comes in with this plan."""
    for entry in live.values():
        request, table = entry.request, entry.request.block_table
        if entry.running and len(table) * config.block_size < entry.computed:
            broken("plan", f"request {request.id} had {entry.computed} tokens in its blocks and "
                   f"holds {len(table)} now; plan.preempted does not name it",
                   "put whoever loses its blocks into plan.preempted")  # fmt: skip


def _note_admitted(plan: StepPlan, live: Ledger) -> None:
    for request in plan.admitted:
        entry = live.get(request.id)
        if entry is None:
            broken("causality", f"request {request.id} is admitted; it has ended, or never came",
                   "take it out of the queue when it ends or is aborted")  # fmt: skip
        if entry.running:
            broken("plan", f"request {request.id} is admitted, and runs already",
                   "take it out of the queue when it is admitted")  # fmt: skip
        entry.running = entry.fresh = True
    for entry in live.values():
        if not entry.running and entry.request.block_table:
            broken("returned", f"request {entry.request.id} waits and holds blocks "
                   f"{entry.request.block_table}", "it holds blocks, so it was admitted: name it "
                   "in plan.admitted; or it lost them: empty its block_table")  # fmt: skip


def _chunks(plan: StepPlan, config: SchedulerConfig, live: Ledger) -> Iterator[Work]:
    for request, start, count in plan.prefills:
        entry = _running(live, request, "computes a chunk")
        if count < 1:
            broken("plan", f"request {request.id} gets a chunk of {count} tokens",
                   "leave it out when the budget is used up")  # fmt: skip
        if entry.fresh:
            cached = config.enable_prefix_caching and start % config.block_size == 0
            if start and not cached:
                broken("causality", f"request {request.id} starts at token {start}, and none of "
                       "its tokens is computed", "after a preemption all is computed again: "
                       "num_computed_tokens is back at 0, or at the end of whole cached blocks")  # fmt: skip
            entry.fresh, entry.computed = False, start
        if start != entry.computed:
            broken("causality", f"request {request.id} gets a chunk from token {start} on, and "
                   f"{entry.computed} are computed",
                   "tokens are skipped" if start > entry.computed else "tokens are computed twice")  # fmt: skip
        if start + count > entry.known:
            broken("causality", f"request {request.id} computes up to token {start + count}, and "
                   f"{entry.known} are known", "a chunk ends with the last token that is known: "
                   "min(num_tokens - num_computed_tokens, budget)")  # fmt: skip
        yield Work(request, start, start + count)


def _decodes(plan: StepPlan, live: Ledger) -> Iterator[Work]:
    for number, request in plan.decodes.items():
        entry = _running(live, request, "decodes")
        if number != request.id:
            broken("plan", f"plan.decodes has request {request.id} under {number}", "key by id")
        if not entry.produced or entry.computed != entry.known - 1:
            broken("causality", f"request {request.id} decodes with {entry.computed} of "
                   f"{entry.known} tokens computed", "it decodes once all but its newest token are "
                   "computed; after a preemption it is in its prompt again")  # fmt: skip
        yield Work(request, entry.computed, entry.computed + 1)


def _running(live: Ledger, request: RequestState, does: str) -> Entry:
    entry = live.get(request.id)
    if entry is None:
        broken("causality", f"request {request.id} {does}; it has ended, or never came",
               "take it out of your lists when it ends or is aborted")  # fmt: skip
    if not entry.running:
        broken("plan", f"request {request.id} {does}, and plan.admitted never named it",
               "name it when it leaves the queue, after a preemption too")  # fmt: skip
    return entry


def _once(work: list[Work]) -> None:
    seen: set[int] = set()
    for item in work:
        if item.request.id in seen:
            broken("plan", f"request {item.request.id} is in the plan twice",
                   "a request decodes or has one chunk; take it out of one list when it enters "
                   "the other")  # fmt: skip
        seen.add(item.request.id)


def _limits(plan: StepPlan, config: SchedulerConfig, live: Ledger, work: list[Work]) -> None:
    running = [number for number, entry in live.items() if entry.running]
    if len(running) > config.max_num_seqs:
        broken("slots", f"requests {ids(running)} run, there are {config.max_num_seqs} slots",
               "those still in their prompt have a slot too")  # fmt: skip
    total, budget = sum(end - start for _, start, end in work), config.max_num_batched_tokens
    if total > budget:
        prompts = total - len(plan.decodes)
        broken("budget", f"{total} tokens in one step ({len(plan.decodes)} decodes, {prompts} of "
               f"prompts), the budget is {budget}",
               "the decodes are not taken off the budget before the prompts get theirs"
               if prompts <= budget else
               "each chunk may use the whole budget; take off what earlier ones use")  # fmt: skip


def _adds_up(plan: StepPlan, work: list[Work]) -> None:
    """The cost model charges time by these sums."""
    decodes = [item for item in work if item.request.id in plan.decodes]
    wanted = {
        "num_decodes": len(decodes),
        "num_prefill_tokens": sum(n for _, _, n in plan.prefills),
        "context": sum(item.end for item in decodes),
    }
    for name, value in wanted.items():
        if getattr(plan, name) != value:
            broken("plan", f"plan.{name} is {getattr(plan, name)}, the plan's requests make it "
                   f"{value}", "the step's time is charged by these sums")  # fmt: skip
    if plan.drafts:
        broken("plan", f"drafts for {ids(plan.drafts)}; nobody proposed any", "leave drafts empty")


def _tables(config: SchedulerConfig, work: list[Work]) -> None:
    for request, _, end in work:
        table = request.block_table
        if len(table) * config.block_size < end:
            broken("blocks", f"request {request.id} writes its token {end - 1} and holds "
                   f"{len(table)} blocks of {config.block_size}",
                   "take a block before the step whose token no longer fits the last one")  # fmt: skip
        for block in table:
            if not isinstance(block, int) or not 0 <= block < config.num_blocks:
                broken("blocks", f"request {request.id} holds block {block!r}, the pool has 0 to "
                       f"{config.num_blocks - 1}", "take blocks from the pool")  # fmt: skip
