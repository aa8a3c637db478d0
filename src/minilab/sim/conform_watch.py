"""Watched: stands between an instance and a scheduler, and sees every rule kept at every step.

It keeps a ledger of its own (who waits, who runs, how much is computed), runs each plan on a memory
of names, and believes nothing that the scheduler says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepOutcome, StepPlan, StepResult
from minilab.core.request import ABORTED, FINISHED, REJECTED, RequestState
from minilab.sim.conform_memory import Memory, Work, WrongSlot
from minilab.sim.conform_plan import check_plan
from minilab.sim.conform_rules import MOST_OVERTAKEN, Broken, broken, ids


@dataclass(slots=True, eq=False)
class Entry:
    """What the ledger knows of one request that has not ended."""

    request: RequestState
    running: bool = False
    admitted: bool = False
    computed: int = 0
    produced: int = 0
    overtaken: int = 0

    @property
    def known(self) -> int:
        """Tokens there are: the prompt and what came out."""
        return self.request.num_prompt_tokens + self.produced


class Watched:
    """A scheduler under watch; it behaves as the one inside, or raises Broken.

    ``live``: entries of requests that have not ended, by id, in order of arrival. ``order``: ids as
    they were admitted first. ``steps``: planned so far. ``repeats_seen``: most repeats promised.
    """

    accepts_now = True

    def __init__(self, inner: Any, config: SchedulerConfig, most_steps: int) -> None:
        self.inner, self.config = inner, config
        self.live: dict[int, Entry] = {}
        self.order: list[int] = []
        self.steps = 0
        self.repeats_seen = 1
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
        """See ``Scheduler``."""
        kept = self._ask(lambda: self.inner.add(request))
        if not isinstance(kept, bool):
            broken("interface", f"add returned {kept!r}; True or False is expected", "return it")
        blocks = -(-(request.num_prompt_tokens + request.max_tokens - 1) // self.config.block_size)
        fits = blocks <= self.config.num_blocks
        said = f"request {request.id} needs {blocks} blocks to its end"
        if kept and not fits:
            self._break("admission", f"{said}, the pool has {self.config.num_blocks}; it was kept",
                        "it will never be admitted, or run out of blocks alone and for ever")  # fmt: skip
        if fits and not kept:
            self._break("admission", f"{said} of {self.config.num_blocks}, and was refused",
                        "the last token's KV is never written: prompt + output - 1 tokens; and "
                        "blocks that are in use now come back")  # fmt: skip
        if not kept and request.status != REJECTED:
            self._break("interface", f"request {request.id} was refused with its status unchanged",
                        "set request.status = REJECTED")  # fmt: skip
        if kept:
            self.live[request.id] = Entry(request)
        return kept

    def abort(self, request: RequestState) -> None:
        """See ``Scheduler``."""
        self._ask(lambda: self.inner.abort(request))
        self.live.pop(request.id, None)
        if request.status != ABORTED:
            self._break("interface", f"request {request.id} was aborted; its status is "
                        f"{_word(request)}", "set request.status = ABORTED")  # fmt: skip
        self._gone(request, "was aborted")
        self._check_blocks()

    # -- one step -------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """See ``Scheduler``; the plan is checked and run on the memory of names."""
        self.steps += 1
        if self.steps > self._most_steps:
            self._break("progress", f"no end after {self._most_steps} steps",
                        "requests take each other's blocks in turn, or chunks of nothing are "
                        "planned")  # fmt: skip
        plan: StepPlan = self._ask(self.inner.schedule)
        self._work = self._guard(lambda: check_plan(plan, self.config, self.live))
        self._note_overtaking(plan)
        self._check_counts()
        self._check_blocks()
        tables = [entry.request.block_table for entry in self.live.values()]
        wrong = self._memory.run(self._work, tables)
        if wrong is not None:
            self._break(*_told(wrong))
        if not self._work and self.live:
            waiting = [r for r, entry in self.live.items() if not entry.running]
            self._break("progress", f"an empty plan, though {ids(self.live)} are not done "
                        f"(waiting: {ids(waiting)})", "when nobody runs, every block is free: the "
                        "head of the queue fits")  # fmt: skip
        self.repeats_seen = max(self.repeats_seen, self._ask(lambda: self.inner.repeats(plan)))
        return plan

    def update(self, plan: StepPlan, outcome: StepOutcome, steps: int) -> StepResult:
        """See ``Scheduler``; who got a token and who is done is worked out independently."""
        started, ended = [], []
        for request, _start, end in self._work:
            entry = self.live[request.id]
            prompt = request.id not in plan.decodes
            entry.computed = end
            if end == entry.known:
                entry.produced += 1
                if prompt:
                    started.append(request)
                if entry.produced == request.max_tokens:
                    ended.append(request)
        result: StepResult = self._ask(lambda: self.inner.update(plan, outcome, steps))
        self._check_result(result, started, ended)
        for request in ended:
            del self.live[request.id]
            self._gone(request, "is done")
        self._check_blocks()
        return result

    def _check_result(
        self, result: StepResult, started: list[RequestState], ended: list[RequestState]
    ) -> None:
        try:
            said_started, said_ended, _used = result
        except (TypeError, ValueError):
            broken("interface", f"update returned {result!r}; a StepResult is expected",
                   "return StepResult(started, finished, used_blocks)")  # fmt: skip
        for request in ended:
            if request not in said_ended:
                self._break("tokens", f"request {request.id} has its {request.max_tokens} tokens "
                            "and is not reported as finished", "count the token of the step that "
                            "ends the prompt: it is the first one")  # fmt: skip
            if request.status != FINISHED:
                self._break("interface", f"request {request.id} is done; its status is "
                            f"{_word(request)}", "set request.status = FINISHED")  # fmt: skip
            if request.num_output_tokens != request.max_tokens:
                self._break("tokens", f"request {request.id} is done with num_output_tokens "
                            f"{request.num_output_tokens}, asked for {request.max_tokens}",
                            "num_output_tokens is what the record counts")  # fmt: skip
        for request in said_ended:
            if request not in ended:
                entry = self.live.get(request.id)
                got = entry.produced if entry else request.num_output_tokens
                self._break("tokens", f"request {request.id} was finished after {got} of "
                            f"{request.max_tokens} tokens", "a chunk that does not end the prompt "
                            "yields no token")  # fmt: skip
        if sorted(r.id for r in said_started) != sorted(r.id for r in started):
            self._break("tokens", f"started: {ids(said_started)}; the step ended the prompts of "
                        f"{ids(started)}", "started are those whose last chunk this was, after a "
                        "preemption too; never a chunk in the middle")  # fmt: skip

    # -- what must hold at any time -------------------------------------------------------------

    def _note_overtaking(self, plan: StepPlan) -> None:
        for request in plan.admitted:
            entry = self.live[request.id]
            if entry.admitted:
                continue
            entry.admitted = True
            self.order.append(request.id)
            for other in self.live.values():
                if other.request.id < request.id and not other.running:
                    other.overtaken += 1
                    if other.overtaken > MOST_OVERTAKEN:
                        self._break("starvation", f"request {other.request.id} waits, and "
                                    f"{other.overtaken} that came later were admitted",
                                    "a policy that prefers some needs a bound: after so many "
                                    "overtakings a request goes first")  # fmt: skip

    def _check_counts(self) -> None:
        running = sum(entry.running for entry in self.live.values())
        for name, count in (("num_running", running), ("num_waiting", len(self.live) - running)):
            if getattr(self.inner, name) != count:
                self._break("interface", f"{name} is {getattr(self.inner, name)}, there are {count}",
                            "routers and views read it: count what is in your lists")  # fmt: skip

    def _check_blocks(self) -> None:
        pool = self.inner.pool
        tables = [entry.request.block_table for entry in self.live.values()]
        held = len({block for table in tables for block in table})
        if held > pool.used:
            self._break("blocks", f"{held} blocks are in block tables, the pool counts "
                        f"{pool.used} in use", "a block was given back by who still uses it, or "
                        "taken past the pool")  # fmt: skip
        if held < pool.used:
            self._break("returned", f"{pool.used} blocks are in use, {held} of them in a block "
                        "table", "blocks are lost when a request ends, is preempted or aborted: "
                        "release before the table is emptied")  # fmt: skip
        if pool.used + pool.available != self.config.num_blocks:
            self._break("blocks", f"{pool.used} used and {pool.available} available are not the "
                        f"pool's {self.config.num_blocks}", "a block is in two places or in none")  # fmt: skip
        if hasattr(pool, "check"):
            try:
                pool.check(tables)
            except AssertionError as error:
                self._break("blocks", f"the pool's own check: {error}", "")

    def _gone(self, request: RequestState, what: str) -> None:
        if request.block_table:
            self._break("returned", f"request {request.id} {what} and still holds blocks "
                        f"{request.block_table}", "release them and empty block_table")  # fmt: skip

    # -- helpers --------------------------------------------------------------------------------

    def _break(self, rule: str, what: str, likely: str = "") -> None:
        raise Broken(rule, what, likely, self.steps)

    def _ask(self, call: Callable[[], Any]) -> Any:
        return self._guard(call)

    def _guard(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Broken as found:
            found.step = self.steps
            raise
