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
    def asked(self) -> int:
        """Output tokens that the client wants; the state's own count may have been changed."""
        return self.request.request.output_tokens

    @property
    def known(self) -> int:
        """Tokens there are: the prompt and what came out."""
        return self.request.request.prompt_tokens + self.produced


Ledger = dict[int, Entry]


def check_plan(plan: StepPlan, config: SchedulerConfig, live: Ledger) -> list[Work]:
    """What the step computes, request by request; the ledger notes who came and who lost blocks.

    Raises BrokenRule with the first rule that the plan breaks.
    """
    for name in PLAN_FIELDS:
        if not hasattr(plan, name):
            broken("interface.plan", f"schedule returned {plan!r}, which has no {name}")
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
            broken("plan.preempted", f"request {request.id} is preempted and was not running")
        entry.running, entry.computed = False, 0
        if request.block_table:
            holds = f"still holds blocks {request.block_table}"
            broken("returned.held", f"request {request.id} was preempted and {holds}")


def _check_kept(config: SchedulerConfig, live: Ledger) -> None:
    """Who runs has kept its blocks."""
    for number, entry in live.items():
        held = len(entry.request.block_table)
        if entry.running and held * config.block_size < entry.computed:
            had = f"had {entry.computed} tokens in its blocks and holds {held} blocks now"
            broken("plan.unsaid", f"request {number} {had}; plan.preempted does not name it")


def _note_admitted(plan: StepPlan, live: Ledger) -> None:
    for request in plan.admitted:
        entry = live.get(request.id)
        if entry is None:
            broken("causality.gone", f"request {request.id} is admitted; it has ended")
        if entry.running:
            broken("plan.again", f"request {request.id} is admitted, and runs already")
        entry.running = entry.fresh = True
    for number, entry in live.items():
        table = entry.request.block_table
        if table and not entry.running:
            broken("returned.waits", f"request {number} waits and holds blocks {table}")


def _chunks(plan: StepPlan, config: SchedulerConfig, live: Ledger) -> Iterator[Work]:
    for request, start, count in plan.prefills:
        entry = _running(live, request, "computes a chunk")
        who = f"request {request.id}"
        if count < 1:
            broken("plan.empty", f"{who} gets a chunk of {count} tokens")
        if entry.fresh:
            cached = config.enable_prefix_caching and start % config.block_size == 0
            if start and not cached:
                broken("causality.restart", f"{who} starts at token {start}; none is computed")
            entry.fresh, entry.computed = False, start
        if start != entry.computed:
            case = "skipped" if start > entry.computed else "repeated"
            found = f"gets a chunk from token {start} on; {entry.computed} are computed"
            broken(f"causality.{case}", f"{who} {found}")
        if start + count > entry.known:
            found = f"computes up to token {start + count}; {entry.known} are known"
            broken("causality.beyond", f"{who} {found}")
        yield Work(request, start, start + count)


def _decodes(plan: StepPlan, live: Ledger) -> Iterator[Work]:
    for number, request in plan.decodes.items():
        entry = _running(live, request, "decodes")
        if number != request.id:
            broken("plan.key", f"plan.decodes has request {request.id} under {number}")
        if not entry.produced or entry.computed != entry.known - 1:
            found = f"decodes with {entry.computed} of {entry.known} tokens computed"
            broken("causality.early", f"request {request.id} {found}")
        yield Work(request, entry.computed, entry.computed + 1)


def _running(live: Ledger, request: RequestState, does: str) -> Entry:
    entry = live.get(request.id)
    if entry is None:
        broken("causality.gone", f"request {request.id} {does}; it has ended")
    if not entry.running:
        broken("plan.stranger", f"request {request.id} {does}; plan.admitted never named it")
    return entry


def _once(work: list[Work]) -> None:
    seen: set[int] = set()
    for item in work:
        if item.request.id in seen:
            broken("plan.twice", f"request {item.request.id} is in the plan twice")
        seen.add(item.request.id)


def _limits(plan: StepPlan, config: SchedulerConfig, live: Ledger, work: list[Work]) -> None:
    running = [number for number, entry in live.items() if entry.running]
    if len(running) > config.max_num_seqs:
        slots = f"there are {config.max_num_seqs} slots"
        broken("slots.many", f"requests {ids(running)} run; {slots}")
    total, budget = sum(end - start for _, start, end in work), config.max_num_batched_tokens
    if total > budget:
        prompts = total - len(plan.decodes)
        case = "decodes" if prompts <= budget else "chunks"
        found = f"{len(plan.decodes)} decodes and {prompts} tokens of prompts in one step"
        broken(f"budget.{case}", f"{found}; the budget is {budget}")


def _adds_up(plan: StepPlan, work: list[Work]) -> None:
    """The cost model charges time by these sums."""
    decodes = [item for item in work if item.request.id in plan.decodes]
    wanted = {
        "num_decodes": len(decodes),
        "num_prefill_tokens": sum(count for _, _, count in plan.prefills),
        "context": sum(item.end for item in decodes),
    }
    for name, value in wanted.items():
        if getattr(plan, name) != value:
            found = f"plan.{name} is {getattr(plan, name)}; its requests make it {value}"
            broken("plan.sums", found)
    if plan.drafts:
        broken("plan.drafts", f"there are drafts for {ids(plan.drafts)}")


def _tables(config: SchedulerConfig, work: list[Work]) -> None:
    size = config.block_size
    for request, _, end in work:
        table = request.block_table
        if len(table) * size < end:
            found = f"writes its token {end - 1} and holds {len(table)} blocks of {size}"
            broken("blocks.short", f"request {request.id} {found}")
        for block in table:
            if not isinstance(block, int) or not 0 <= block < config.num_blocks:
                last = config.num_blocks - 1
                broken(
                    "blocks.number", f"request {request.id} holds block {block!r} of 0 to {last}"
                )
