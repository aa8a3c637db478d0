"""Case: a sick system and the actions to choose from. ``play`` simulates it under each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from minilab.facts.metrics import metric
from minilab.facts.runlog import RunLog
from minilab.facts.slo import goodput
from minilab.judge.advisor.advise import Advice, advise
from minilab.judge.drill.scrape import Pages, as_sources, scrape
from minilab.judge.drill.system import System, differences, truth

GOOD = 0.9
"""Share of the best action's goodput per GPU from which an action counts as good."""


@dataclass(frozen=True)
class Action:
    """Something to do first. ``changes``: settings by name; none: leave everything alone."""

    key: str
    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One call at night.

    Attributes:
        key: its name. call: what the caller says.
        healthy: the system before; sickness: the settings that went wrong.
        slo: limits in seconds: ttft, itl.
        actions: what may be done first; one of them changes nothing.
    """

    key: str
    call: str
    healthy: System
    sickness: Mapping[str, Any]
    slo: Mapping[str, float]
    actions: tuple[Action, ...]

    @property
    def sick(self) -> System:
        """The system as it is found."""
        return self.healthy.with_(**self.sickness)

    @property
    def truth(self) -> str:
        """The suspect, by what is wrong in the settings."""
        return truth(self.healthy, self.sick)

    def after(self, action: Action) -> System:
        """The system that the action leaves behind."""
        return self.sick.with_(**action.changes)


@dataclass(frozen=True)
class Outcome:
    """A simulated run, judged. Times in seconds; goodput in good requests per second and GPU."""

    attainment: float
    goodput: float
    gpus: int
    ttft_p99: float
    itl_p99: float


@dataclass(frozen=True)
class Played:
    """A case, simulated: as it was healthy, as it is, and after each action, by key."""

    case: Case
    log: RunLog
    healthy: Outcome
    before: Outcome
    after: Mapping[str, Outcome]

    @property
    def best(self) -> float:
        """The highest goodput per GPU that any action reaches."""
        return max(outcome.goodput for outcome in self.after.values())

    def score(self, action: str) -> float:
        """Goodput after the action as a share of the best action's, 0 to 1."""
        return self.after[action].goodput / self.best if self.best else 0.0

    @property
    def good(self) -> list[str]:
        """Actions that reach GOOD of the best; only "leave" where leaving it alone does.

        A lever that gains nothing is still a lever that somebody has to run.
        """
        found = [key for key in self.after if self.score(key) >= GOOD]
        return ["leave"] if "leave" in found else found

    @cached_property
    def pages(self) -> Pages:
        """What the servers export."""
        num_prefill = self.log.meta.get("prefill_instances", 0)
        return scrape(self.log, int(num_prefill), self.case.sick.experiment.model)

    @cached_property
    def advice(self) -> Advice:
        """What the advisor says of those pages; it may be wrong."""
        return advise(as_sources(self.pages), dict(self.case.slo))

    def changed(self, action: Action) -> dict[str, tuple[Any, Any]]:
        """Settings that an action changes: name -> (before, after)."""
        return differences(self.case.sick, self.case.after(action))


def judged(log: RunLog, system: System, slo: Mapping[str, float]) -> Outcome:
    """Goodput and tails of one run."""
    words = ",".join(f"{name}={limit:g}" for name, limit in slo.items())
    found = goodput(log, words, system.gpus)
    if found.attainment is None or found.goodput_per_gpu is None:
        raise ValueError(f"a simulated run was not judged: {found.reason}")
    ttft, itl = (_p99(log, name) for name in ("ttft", "itl"))
    return Outcome(found.attainment, found.goodput_per_gpu, system.gpus, ttft, itl)


def _p99(log: RunLog, name: str) -> float:
    values = metric(log, name)
    return float("nan") if values is None else float(np.nanquantile(values, 0.99))


def play(case: Case) -> Played:
    """Simulate the case and each of its actions; the same case gives the same numbers."""
    log = case.sick.run()
    outcomes = {
        action.key: judged(case.after(action).run(), case.after(action), case.slo)
        for action in case.actions
    }
    healthy = judged(case.healthy.run(), case.healthy, case.slo)
    return Played(case, log, healthy, judged(log, case.sick, case.slo), outcomes)
