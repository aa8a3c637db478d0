"""StepWatch: what the engine's last step was, without keeping all that came before.

The engine tells a record about every step. A record grows with each request, which a server that
runs for weeks cannot afford; so it is kept only where a run log is asked for.
"""

from __future__ import annotations

import time

from minilab.core.plan import StepOutcome, StepPlan, StepResult
from minilab.core.request import RequestState
from minilab.engine.llm import LLM
from minilab.engine.record import EngineRecord


class StepWatch:
    """Takes the place of an engine's record; ``keep`` passes everything on to it.

    Attributes:
        plan: of the last step.
        began: when it began, on ``time.perf_counter``'s clock.
        record: the engine's own record, None if nothing is kept.
    """

    def __init__(self, llm: LLM, keep: bool) -> None:
        self.plan = StepPlan()
        self.began = 0.0
        self.record: EngineRecord | None = llm.record if keep else None
        llm.record = self  # type: ignore[assignment]

    def arrived(self, request: RequestState) -> None:
        """A request was queued."""
        if self.record is not None:
            self.record.arrived(request)

    def begins(self, plan: StepPlan) -> None:
        """A forward pass begins."""
        self.plan = plan
        self.began = time.perf_counter()
        if self.record is not None:
            self.record.begins(plan)

    def moved(self, plan: StepPlan, outcome: StepOutcome) -> None:
        """Some got more than one token."""
        if self.record is not None:
            self.record.moved(plan, outcome)

    def ends(self, plan: StepPlan, result: StepResult) -> None:
        """A forward pass is over, its tokens drawn."""
        if self.record is not None:
            self.record.ends(plan, result)

    def forget(self) -> None:
        """Let go of the last step's requests: the next one may be hours away."""
        self.plan = StepPlan()

    def aborted(self, request: RequestState) -> None:
        """A request was given up."""
        if self.record is not None:
            self.record.aborted(request)
