"""Watched: stands between an instance and a scheduler, and sees every rule kept at every step.

It keeps a ledger of its own (who waits, who runs, how much is computed), runs each plan on a memory
of names, and believes nothing that the scheduler says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepOutcome, StepPlan, StepResult
from minilab.core.request import ABORTED, FINISHED, REJECTED, RequestState
from minilab.sim.conform_memory import Memory, Work, WrongSlot
from minilab.sim.conform_plan import Entry, Ledger, check_plan
from minilab.sim.conform_rules import MOST_OVERTAKEN, Broken, broken, ids

NEEDS = (
    *("add", "schedule", "update", "abort", "repeats"),
    *("num_running", "num_waiting", "accepts_now", "pool"),
)
_FOUND = {
    "nothing": "a slot that nobody has written: was a block published, or counted as computed, "
    "before its step was over?",
    "other text": "the KV of another text: was the block given away while it was in use, or does "
    "its hash leave out what comes before it?",
    "another salt": "the KV of the same text under another salt: the salt belongs into the hash, "
    "or one tenant reads the other's cache",
}


class Watched:
    """A scheduler under watch; it behaves as the one inside, or raises Broken.

    ``live``: entries of requests that have not ended, by id, in order of arrival. ``order``: ids as
    they were first admitted. ``steps``: planned so far. ``most_repeats``: promised at once.
    """

    accepts_now = True

    def __init__(self, inner: Any, config: SchedulerConfig, most_steps: int) -> None:
        for name in NEEDS:
            if not hasattr(inner, name):
                broken("interface", f"it has no {name}",
                       "core.instance.SchedulerLike lists what an instance needs")  # fmt: skip
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
            broken("interface", f"add returned {kept!r}", "return True if it is queued, else False")
        blocks = -(-(request.num_prompt_tokens + request.max_tokens - 1) // self.config.block_size)
        fits = blocks <= self.config.num_blocks
        need = f"request {request.id} needs {blocks} blocks to its end"
        if kept and not fits:
            broken("admission", f"{need}, the pool has {self.config.num_blocks}; it was queued",
                   "it can never end: refuse it, else it waits or runs out of blocks for ever")  # fmt: skip
        if fits and not kept:
            broken("admission", f"{need} of the pool's {self.config.num_blocks}; it was refused",
                   "blocks in use come back; and the last token's KV is never written: prompt + "
                   "output - 1")  # fmt: skip
        if kept:
            self.live[request.id] = Entry(request)
        else:
            _status(request, REJECTED, "was refused")
        return kept

    def abort(self, request: RequestState) -> None:
        """See ``core.scheduler.Scheduler``."""
        self._ask("abort", request)
        self.live.pop(request.id, None)
        _status(request, ABORTED, "was aborted")
        _holds_nothing(request, "was aborted")
        self._check_blocks()

    # -- one step -------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """See ``core.scheduler.Scheduler``; the plan is checked and run on the memory of names."""
        self.steps += 1
        if self.steps > self._most_steps:
            broken("progress", f"no end after {self._most_steps} steps",
                   "requests take each other's blocks in turn and begin again?")  # fmt: skip
        plan: StepPlan = self._ask("schedule")
        self._work = check_plan(plan, self.config, self.live)
        self._note_overtaking(plan)
        self._check_blocks()
        wrong = self._memory.run(self._work, self._tables())
        if wrong is not None:
            _refuse_slot(wrong)
        running = sum(entry.running for entry in self.live.values())
        for name, count in (("num_running", running), ("num_waiting", len(self.live) - running)):
            if getattr(self.inner, name) != count:
                broken("interface", f"{name} is {getattr(self.inner, name)!r}, and there are "
                       f"{count}", "routers read it: a property that counts your lists")  # fmt: skip
        if not self._work and self.live:
            broken("progress", f"an empty plan, and requests {ids(self.live)} are not done "
                   f"({running} run)", "when nobody runs all blocks are free, so the head of the "
                   "queue fits; when somebody runs, it must go on")  # fmt: skip
        self.most_repeats = max(self.most_repeats, self._ask("repeats", plan))
        return plan

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        """See ``core.scheduler.Scheduler``; who got a token and who is done is known here."""
        started: list[RequestState] = []
        ended: list[RequestState] = []
        for request, _, end in self._work:
            entry = self.live[request.id]
            entry.computed = end
            if end < entry.known:
                continue
            entry.produced += 1
            if request.id not in plan.decodes:
                started.append(request)
            if entry.produced == request.max_tokens:
                ended.append(request)
        result = self._ask("update", plan, outcome, steps)
        if not isinstance(result, tuple) or len(result) != 3:
            broken("interface", f"update returned {result!r}",
                   "return StepResult(started, finished, used_blocks)")  # fmt: skip
        self._check_tokens(result, started, ended)
        for request in ended:
            del self.live[request.id]
            _holds_nothing(request, "is done")
        self._check_blocks()
        return StepResult(*result)

    def _check_tokens(
        self, result: Sequence[Any], started: list[RequestState], ended: list[RequestState]
    ) -> None:
        for request in ended:
            if request not in result[1]:
                broken("tokens", f"request {request.id} has all of its {request.max_tokens} tokens "
                       "and is not reported as finished", "the step that ends the prompt yields "
                       "the first token: count it")  # fmt: skip
            _status(request, FINISHED, "is done")
            if request.num_output_tokens != request.max_tokens:
                broken("tokens", f"request {request.id} is done, and its num_output_tokens is "
                       f"{request.num_output_tokens} of {request.max_tokens}",
                       "the record counts by it: one more for each token")  # fmt: skip
        for request in result[1]:
            if request not in ended:
                entry = self.live.get(request.id)
                broken("tokens", f"request {request.id} was finished with "
                       f"{entry.produced if entry else 'all'} of {request.max_tokens} tokens",
                       "only a step that computes the last known token yields one")  # fmt: skip
        if sorted(r.id for r in result[0]) != sorted(r.id for r in started):
            broken("tokens", f"started are {ids(result[0])}; the step ended the prompt of "
                   f"{ids(started)}", "started are those whose last chunk this was, after a "
                   "preemption too")  # fmt: skip

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
                        broken("starvation", f"request {number} waits, and {other.overtaken} that "
                               "came after it were admitted", "a policy that prefers some needs a "
                               "bound: who was passed over too often goes first")  # fmt: skip

    def _check_blocks(self) -> None:
        pool, tables = self.inner.pool, self._tables()
        held = len({block for table in tables for block in table})
        if held > pool.used:
            broken("blocks", f"block tables name {held} blocks, {pool.used} are in use",
                   "a block went back to the pool while a table still had it")  # fmt: skip
        if held < pool.used:
            broken("returned", f"{pool.used} blocks are in use, block tables name {held}",
                   "blocks are lost: release them before the table is emptied, at the end, at a "
                   "preemption and at an abort")  # fmt: skip
        if pool.used + pool.available != self.config.num_blocks:
            broken("blocks", f"{pool.used} blocks used, {pool.available} available, and the pool "
                   f"has {self.config.num_blocks}", "a block is in two places, or in none")  # fmt: skip
        if hasattr(pool, "check"):
            try:
                pool.check(tables)
            except AssertionError as error:
                broken("blocks", f"the pool's own check: {error}",
                       "a block was taken, shared or given back without the pool's methods")  # fmt: skip

    def _tables(self) -> list[list[int]]:
        return [entry.request.block_table for entry in self.live.values()]

    def _ask(self, name: str, *given: Any) -> Any:
        """Call the scheduler; what it raises is its own fault."""
        try:
            call: Callable[..., Any] = getattr(self.inner, name)
            return call(*given)
        except Exception as error:
            text = " ".join(str(error).split())
            likely = ""
            if "blocks asked" in text:
                likely = "ask pool.available before you take, and preempt if there are too few"
            raise Broken("raises", f"{name}: {type(error).__name__}: {text}", likely) from error


def _status(request: RequestState, wanted: Any, what: str) -> None:
    if request.status != wanted:
        broken("interface", f"request {request.id} {what}, its status is {request.status!r}",
               f"set request.status = {wanted.name}")  # fmt: skip


def _holds_nothing(request: RequestState, what: str) -> None:
    if request.block_table:
        broken("returned", f"request {request.id} {what} and holds blocks {request.block_table}",
               "release them, and empty block_table")  # fmt: skip


def _refuse_slot(wrong: WrongSlot) -> None:
    at = f"request {wrong.request}, token {wrong.position}, block {wrong.block}"
    if wrong.found == "shared":
        broken("blocks", f"{at}: it writes into a block that another request holds as well",
               "a shared block is only read: the next token goes to a block of its own")  # fmt: skip
    broken("kv", f"{at}: the step reads {wrong.found if wrong.found != 'nothing' else 'no KV'}",
           _FOUND[wrong.found])  # fmt: skip
