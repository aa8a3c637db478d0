"""EngineRecord: the run log of the engine on this machine's clock, in the simulator's own form.

Each forward pass is a run of one step, so the simulator's recorder can write it down: the same
goodput code then judges a simulation and a measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minilab.core.instance import Run
from minilab.core.plan import StepOutcome, StepPlan, StepResult
from minilab.core.request import RequestState
from minilab.core.scheduler import Scheduler
from minilab.facts.runlog import RunLog
from minilab.facts.ticks import TICKS_PER_SECOND
from minilab.recorder import Recorder


class EngineRecord:
    """Collects what happens to each request of one scheduler. Times count from the first call.

    Attributes:
        runs: one per forward pass, as ``core.instance.Run``.
        stalled: no decode of the engine is ever passed over.
        clock: nanoseconds; set another one before the first request, if ever.
    """

    stalled: tuple[RequestState, ...] = ()

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.runs: list[Run] = []
        self._recorder = Recorder([self])  # type: ignore[list-item]
        self._states: dict[int, RequestState] = {}
        self._arrivals: dict[int, int] = {}
        self.clock: Callable[[], int] = time.perf_counter_ns
        self._zero: int | None = None
        self._began = 0

    @property
    def requests(self) -> list[RequestState]:
        """Every request so far, in order of id."""
        return [self._states[key] for key in sorted(self._states)]

    def now(self) -> int:
        """Ticks since the first call."""
        reading = self.clock()
        if self._zero is None:
            self._zero = reading
        return (reading - self._zero) * TICKS_PER_SECOND // 10**9

    def arrived(self, request: RequestState) -> None:
        """A request was queued."""
        request.queued_at = self._arrivals[request.id] = self.now()
        self._states[request.id] = request
        self._recorder.placed_on[request.id] = 0

    def begins(self, plan: StepPlan) -> None:
        """A forward pass begins."""
        self._began = self.now()
        self._recorder.planned(0, plan, self._began)

    def moved(self, plan: StepPlan, outcome: StepOutcome) -> None:
        """Note who got more than one token: the others of them came without a gap."""
        for request_id, count in outcome.tokens.items():
            plan.decodes[request_id].zeros += count - 1

    def ends(self, plan: StepPlan, result: StepResult) -> None:
        """A forward pass is over, its tokens drawn."""
        now = self.now()
        lasted = max(1, now - self._began)
        used = result.used_blocks
        self.runs.append((self._began, lasted, 0, 1, plan.num_decodes, plan.num_waiting, used))
        self._recorder.completed(0, result, self._began + lasted)

    def aborted(self, request: RequestState) -> None:
        """A request was given up."""
        self._recorder.aborted(0, request, self.now())

    def to_runlog(self, **meta: Any) -> RunLog:
        """The run log of every request so far, in order of id."""
        states = self.requests
        blocks = self.scheduler.config.num_blocks
        log = self._recorder.to_runlog(states, {"num_blocks": blocks, "gpus": 1, **meta})
        for row, state in enumerate(states):
            log.requests["arrival"][row] = self._arrivals[state.id] / TICKS_PER_SECOND
        log.requests["queue"][:] = log.requests["scheduled"] - log.requests["arrival"]
        return log.check()
