"""Watched: stands between an instance and a scheduler, and sees every rule kept at every step.

It keeps a ledger of its own (who waits, who runs, how much is computed), runs each plan on a memory
of names, and believes nothing that the scheduler says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepOutcome, StepPlan, StepResult
from minilab.core.request import ABORTED, FINISHED, REJECTED, RequestState, RequestStatus
from minilab.sim.conform_memory import Memory, Work
from minilab.sim.conform_plan import Entry, Ledger, check_plan
from minilab.sim.conform_rules import MOST_OVERTAKEN, BrokenRule, broken, ids

NEEDS = (
    *("add", "schedule", "update", "abort", "repeats"),
    *("num_running", "num_waiting", "accepts_now", "pool"),
)
_READS = {
    "nothing": ("kv.nothing", "the step reads a slot that nobody has written"),
    "other text": ("kv.other", "the step reads the KV of another text"),
    "another salt": ("kv.salt", "the step reads the KV of the same text under another salt"),
    "shared": ("blocks.shared", "the step writes into a block that another request holds as well"),
}


class Watched:
    """A scheduler under watch; it behaves as the one inside, or raises BrokenRule.

    ``live``: entries of requests that have not ended, by id, in order of arrival. ``order``: ids as
    they were first admitted. ``steps``: planned so far. ``most_repeats``: promised at once.
    """

    accepts_now = True

    def __init__(self, inner: Any, config: SchedulerConfig, most_steps: int) -> None:
        for name in NEEDS:
            if not hasattr(inner, name):
                broken("interface.lacks", f"it has no {name}")
        self.inner, self.config = inner, config
        self.live: Ledger = {}
        self.order: list[int] = []
        self.steps = 0
        self.most_repeats = 1
        self._most_steps = most_steps
        self._memory = Memory(config.num_blocks, config.block_size)
        self._work: list[Work] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def repeats(self, plan: StepPlan) -> int:
        """One step at a time, whatever the scheduler could skip."""
        return 1

    # -- requests come and go -------------------------------------------------------------------

    def add(self, request: RequestState) -> bool:
        """See ``core.scheduler.Scheduler``."""
        kept = self._ask("add", request)
        if not isinstance(kept, bool):
            broken("interface.add", f"add returned {kept!r}")
        pool = self.config.num_blocks
        longest = request.request.prompt_tokens + request.request.output_tokens - 1
        blocks = -(-longest // self.config.block_size)
        need = f"request {request.id} needs {blocks} blocks to its end, the pool has {pool}"
        if kept and blocks > pool:
            broken("admission.kept", f"{need}; it was queued")
        if blocks <= pool and not kept:
            broken("admission.refused", f"{need}; it was refused")
        if kept:
            self.live[request.id] = Entry(request)
        else:
            _over(request, REJECTED, "was refused")
        return kept

    def abort(self, request: RequestState) -> None:
        """See ``core.scheduler.Scheduler``."""
        self._ask("abort", request)
        self.live.pop(request.id, None)
        _over(request, ABORTED, "was aborted")
        self._check_blocks()

    # -- one step -------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """See ``core.scheduler.Scheduler``; the plan is checked and run on the memory of names."""
        self.steps += 1
        if self.steps > self._most_steps:
            broken("progress.endless", f"no end after {self._most_steps} steps")
        plan: StepPlan = self._ask("schedule")
        try:
            self._work = check_plan(plan, self.config, self.live)
        except (AttributeError, TypeError, ValueError) as error:
            broken("interface.plan", f"the plan cannot be read: {error}")
        self._note_overtaking(plan)
        self._check_blocks()
        wrong = self._memory.run(self._work, self._tables())
        if wrong is not None:
            case, what = _READS[wrong.found]
            where = f"request {wrong.request}, token {wrong.position}, block {wrong.block}"
            broken(case, f"{where}: {what}")
        running = sum(entry.running for entry in self.live.values())
        for name, count in (("num_running", running), ("num_waiting", len(self.live) - running)):
            said = getattr(self.inner, name)
            if said != count:
                broken("interface.counts", f"{name} is {said!r}; there are {count}")
        if not self._work and self.live:
            left = f"requests {ids(self.live)} are not done ({running} of them run)"
            broken("progress.idle", f"an empty plan, and {left}")
        self.most_repeats = max(self.most_repeats, self._ask("repeats", plan))
        return plan

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        """See ``core.scheduler.Scheduler``; who got a token and who is done is known here."""
        started: list[RequestState] = []
        ended: list[RequestState] = []
        decodes = set(plan.decodes)
        for request, _, end in self._work:
            entry = self.live[request.id]
            entry.computed = end
            if end < entry.known:
                continue
            entry.produced += 1
            if request.id not in decodes:
                started.append(request)
            if entry.produced == entry.asked:
                ended.append(request)
        result = self._ask("update", plan, outcome, steps)
        if not isinstance(result, tuple) or len(result) != 3:
            broken("interface.update", f"update returned {result!r}")
        try:
            self._check_tokens(result, started, ended)
        except (AttributeError, TypeError) as error:
            broken("interface.update", f"its result cannot be read: {error}")
        for request in ended:
            del self.live[request.id]
            _over(request, FINISHED, "is done")
        self._check_blocks()
        return StepResult(*result)

    def _check_tokens(
        self, result: Sequence[Any], started: list[RequestState], ended: list[RequestState]
    ) -> None:
        for request in ended:
            who, asked = f"request {request.id}", request.request.output_tokens
            if request not in result[1]:
                broken("tokens.missed", f"{who} has its {asked} tokens and is not reported as done")
            if request.num_output_tokens != asked:
                counted = f"num_output_tokens is {request.num_output_tokens}"
                broken("tokens.count", f"{who} has its {asked} tokens, and its {counted}")
        for request in result[1]:
            if request not in ended:
                entry, asked = self.live.get(request.id), request.request.output_tokens
                got = entry.produced if entry else "all"
                found = f"was finished with {got} of {asked} tokens"
                broken("tokens.early", f"request {request.id} {found}")
        if sorted(r.id for r in result[0]) != sorted(r.id for r in started):
            found = f"started are {ids(result[0])}; the step ended the prompt of {ids(started)}"
            broken("tokens.started", found)

    # -- what holds at any time -----------------------------------------------------------------

    def _note_overtaking(self, plan: StepPlan) -> None:
        for request in plan.admitted:
            if self.live[request.id].admitted:
                continue
            self.live[request.id].admitted = True
            self.order.append(request.id)
            for number, other in self.live.items():
                if number < request.id and not other.running:
                    other.overtaken += 1
                    if other.overtaken > MOST_OVERTAKEN:
                        later = f"{other.overtaken} that came after it were admitted"
                        broken("starvation.overtaken", f"request {number} waits, and {later}")

    def _check_blocks(self) -> None:
        pool, tables = self.inner.pool, self._tables()
        held = len({block for table in tables for block in table})
        counts = f"{pool.used} blocks are in use, block tables name {held}"
        if held != pool.used:
            broken("blocks.given" if held > pool.used else "returned.lost", counts)
        if pool.used + pool.available != self.config.num_blocks:
            sums = f"{pool.used} blocks used and {pool.available} available"
            broken("blocks.sum", f"{sums}; the pool has {self.config.num_blocks}")
        if hasattr(pool, "check"):
            try:
                pool.check(tables)
            except AssertionError as error:
                broken("blocks.pool", f"the pool's own check: {error}")

    def _tables(self) -> list[list[int]]:
        return [entry.request.block_table for entry in self.live.values()]

    def _ask(self, name: str, *given: Any) -> Any:
        """Call the scheduler; what it raises is its own fault."""
        try:
            call: Callable[..., Any] = getattr(self.inner, name)
            return call(*given)
        except Exception as error:
            text = " ".join(str(error).split())
            case = "raises.take" if "blocks asked" in text else "raises.other"
            raise BrokenRule(case, f"{name}: {type(error).__name__}: {text}") from error


def _over(request: RequestState, status: RequestStatus, what: str) -> None:
    """Who has ended holds nothing, and its status says how it ended."""
    if request.block_table:
        broken("returned.held", f"request {request.id} {what} and holds {request.block_table}")
    if request.status != status:
        found = (
            f"its status is {getattr(request.status, 'name', request.status)}, not {status.name}"
        )
        broken("interface.status", f"request {request.id} {what}; {found}")
