"""Conformance: may this scheduler be used? Many small worlds, the house rules, and an oracle.

``conform(Mine)`` runs a class with the interface of ``core.plain_scheduler.PlainScheduler`` through
random worlds and through streams made to starve somebody. Every step is checked, and run on a KV
cache that holds the names of texts instead of numbers, so that a wrong block is seen at once. What
breaks a rule is shown on the smallest world that still breaks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from minilab.facts.errors import InputError
from minilab.sim.conform_rules import CLAIMS, RULES
from minilab.sim.conform_run import SECONDS, Factory, Finding, claims_of, plain_course, run_world
from minilab.sim.conform_world import World, random_world, shrink, streams

WORLDS = 200
MOST_FAILING = 25
"""Worlds that may fail before the rest is left out: by then it is known what is wrong."""
MOST_SLOW = 3
"""The same for those that do not end: each takes its time limit."""
WIDTH = 66
"""Characters of a finding's lines, so that terminals and pages show them as they are."""


@dataclass(frozen=True)
class Report:
    """What a scheduler was tried on, and what came of it.

    ``worlds``: tried; ``failing``: of these. ``findings``: one for each broken rule, the most
    frequent first, each with its smallest world. ``steps``, ``preemptions``: of the worlds that
    passed, beside the plain scheduler's.
    """

    name: str
    claims: tuple[str, ...]
    worlds: int
    failing: int
    findings: tuple[Finding, ...]
    steps: tuple[int, int]
    preemptions: tuple[int, int]

    @property
    def passed(self) -> bool:
        """Whether no rule was broken."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "scheduler": self.name,
            "claims": list(self.claims),
            "passed": self.passed,
            "worlds": self.worlds,
            "failing": self.failing,
            "steps": {"mine": self.steps[0], "plain": self.steps[1]},
            "preemptions": {"mine": self.preemptions[0], "plain": self.preemptions[1]},
            "findings": [
                {
                    "rule": f.rule,
                    "says": RULES[f.rule],
                    "what": f.what,
                    "likely": f.likely,
                    "where": f.where,
                    "step": f.step,
                    "world": f.world.lines(),
                    "found_in": f.world.name,
                }
                for f in self.findings
            ],
        }

    def __str__(self) -> str:
        """For people: a verdict, and what broke on which world."""
        claims = f", claims {' and '.join(self.claims)}" if self.claims else ""
        lines = [f"{self.name}: {self.worlds} worlds{claims}"]
        if self.passed:
            steps, plain = self.steps
            lost, plainly = self.preemptions
            lines += [
                f"conforms: {len(_judged(self.claims))} rules kept",
                f"beside PlainScheduler: {steps} steps against {plain}, "
                f"{lost} preemptions against {plainly}",
            ]
            return "\n".join(lines)
        lines.append(f"does not conform: a rule is broken in {self.failing} of them")
        for finding in self.findings:
            lines += ["", *told(finding)]
        return "\n".join(lines)

    __repr__ = __str__


def told(finding: Finding) -> list[str]:
    """A finding as lines of text."""
    parts = [
        ("rule", f"{finding.rule}: {RULES[finding.rule]}"),
        ("found", f"step {finding.step}: {finding.what}"),
        ("at", finding.where),
        ("likely", finding.likely),
        *(("world" if not at else "", line) for at, line in enumerate(finding.world.lines())),
        ("from", finding.world.name),
    ]
    lines: list[str] = []
    for name, text in parts:
        wrapped = wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [f"  {name if k == 0 else '':<8}{line}" for k, line in enumerate(wrapped)]
    return lines


def conform(
    scheduler: Factory, worlds: int = WORLDS, seed: int = 0, seconds: float = SECONDS
) -> Report:
    """Try ``scheduler`` (a class, or anything that makes one from a SchedulerConfig).

    ``worlds`` random ones, from ``seed`` on, and the streams; a world may take ``seconds``.
    ``scheduler.claims`` may promise more than the rules: "fcfs" (admitted in order of arrival),
    "plain" (the run of PlainScheduler).

    Raises:
        InputError: a claim that does not exist.
    """
    claims = claims_of(scheduler)
    for claim in claims:
        if claim not in CLAIMS:
            raise InputError(f"claims {claim!r}: known are {', '.join(CLAIMS)}; correct or drop it")
    found: dict[str, list[Finding]] = {}
    tried = failing = slow = 0
    steps, plain_steps, lost, plain_lost = 0, 0, 0, 0
    for world in _worlds(worlds, seed):
        tried += 1
        course = run_world(scheduler, world, seconds)
        if course.finding is not None:
            failing += 1
            found.setdefault(course.finding.rule, []).append(course.finding)
            slow += course.finding.rule == "progress"
            if failing == MOST_FAILING or slow == MOST_SLOW:
                break
            continue
        oracle, _ = plain_course(world)
        steps, plain_steps = steps + course.steps, plain_steps + oracle.steps
        lost, plain_lost = lost + course.preemptions, plain_lost + oracle.preemptions
    often = sorted(found.values(), key=len, reverse=True)
    return Report(
        str(getattr(scheduler, "__name__", type(scheduler).__name__)),
        claims,
        tried,
        failing,
        tuple(_smallest(scheduler, findings, seconds) for findings in often),
        (steps, plain_steps),
        (lost, plain_lost),
    )


def _worlds(count: int, seed: int) -> Iterator[World]:
    yield from (random_world(seed + k) for k in range(count))
    yield from streams()


def _smallest(scheduler: Factory, findings: list[Finding], seconds: float) -> Finding:
    """The finding again, in the smallest world that shows it."""
    first = min(findings, key=lambda f: len(f.world.requests))
    count = len(first.world.requests)

    def fails(world: World) -> bool:
        again = run_world(scheduler, world, min(seconds, 0.5)).finding
        return again is not None and again.rule == first.rule

    tries = 15 if first.rule == "progress" else 300 if count < 30 else 60
    small = shrink(first.world, fails, tries)
    if len(small.requests) < count:
        small = replace(small, name=f"{first.world.name}, {count} requests shrunk to these")
    again = run_world(scheduler, small, seconds).finding
    return again if again is not None and again.rule == first.rule else first


def _judged(claims: tuple[str, ...]) -> list[str]:
    return [rule for rule in RULES if rule not in CLAIMS or rule in claims]
