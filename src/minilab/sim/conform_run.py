"""One scheduler through one world: what it broke, or how it compares with the plain one."""

from __future__ import annotations

import inspect
import linecache
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.core.plain_scheduler import PlainScheduler
from minilab.facts.runlog import RunLog
from minilab.sim.cluster import Cluster
from minilab.sim.conform_rules import BrokenRule, Stuck, broken
from minilab.sim.conform_watch import Watched
from minilab.sim.conform_world import World, record

Factory = Callable[[SchedulerConfig], Any]
SECONDS = 3.0
"""For one world; a scheduler needs milliseconds."""


@dataclass(frozen=True)
class Finding:
    """A broken rule in a world: ``step`` counts from 1 (0: before the first); ``where`` names the
    line of the scheduler's own code that raised, if one did.
    """

    rule: str
    what: str
    likely: str
    world: World
    step: int
    where: str = ""


@dataclass(frozen=True)
class Course:
    """How a world went: steps planned and preemptions, and the first rule that was broken."""

    steps: int
    preemptions: int
    finding: Finding | None = None


def plain_course(world: World) -> tuple[Course, RunLog]:
    """The oracle's way through the world, and its log."""
    cluster = world.cluster(PlainScheduler)
    cluster.run(world.requests)
    return _course(cluster), record(cluster)


def _course(cluster: Cluster) -> Course:
    preemptions = sum(state.num_preemptions for state in cluster.states.values())
    return Course(len(cluster.instances[0].runs), preemptions)


def run_world(factory: Factory, world: World, seconds: float = SECONDS) -> Course:
    """Run it under watch and against the oracle. Raises nothing that the scheduler causes."""
    oracle, log = plain_course(world)
    watch: list[Watched] = []

    def watched(config: SchedulerConfig) -> Watched:
        try:
            inner = factory(config)
        except Exception as error:
            text = f"the constructor: {type(error).__name__}: {' '.join(str(error).split())}"
            raise BrokenRule("raises.other", text) from error
        watch.append(Watched(inner, config, 100 + 4 * oracle.steps))
        return watch[0]

    try:
        with _limit(seconds):
            cluster = world.cluster(watched)
            cluster.run(world.requests)
            _check_promises(factory, world, watch[0], record(cluster), log)
    except (BrokenRule, Stuck) as error:
        return _broken(factory, world, watch, error, seconds)
    return _course(cluster)


def _check_promises(
    factory: Factory, world: World, watch: Watched, mine: RunLog, oracle: RunLog
) -> None:
    """What the class claims, and what ``repeats`` promised."""
    claims = claims_of(factory)
    if "fcfs" in claims and watch.order != sorted(watch.order):
        at = next(i for i in range(1, len(watch.order)) if watch.order[i] < watch.order[i - 1])
        found = f"request {watch.order[at - 1]} was admitted before request {watch.order[at]}"
        broken("fcfs.order", found)
    if "plain" in claims and (found := oracle.difference(mine, 1e-9) or ""):
        broken("plain.differs", f"PlainScheduler (here) and yours (there): {found}")
    if watch.most_repeats > 1:
        try:
            found = mine.difference(world.log(factory, skip=True), 1e-9) or ""
        except Exception as error:  # what the promise leads to is its own fault
            raise BrokenRule("repeats.differs", f"skipping: {type(error).__name__}") from error
        if found:
            broken("repeats.differs", f"step by step (here) and skipping (there): {found}")


def claims_of(factory: Factory) -> tuple[str, ...]:
    """What a class promises of itself: its attribute ``claims``, () without one."""
    return tuple(getattr(factory, "claims", ()))


def _broken(
    factory: Factory, world: World, watch: list[Watched], error: BaseException, seconds: float
) -> Course:
    steps = watch[0].steps if watch else 0
    if isinstance(error, BrokenRule):
        cause = error.__cause__
        where = where_of(factory, cause) if isinstance(cause, Exception) else ""
        finding = Finding(error.rule, error.what, error.likely, world, steps, where)
    else:
        case = BrokenRule("progress.stuck", f"a call did not return within {seconds:g} s")
        finding = Finding(case.rule, case.what, case.likely, world, steps, where_of(factory, error))
    return Course(steps, 0, finding)


def where_of(factory: Factory, error: BaseException) -> str:
    """ "mine.py:12: `self.pool.take(n)`": the last line of the scheduler's own file, if any."""
    code = [f.__code__ for f in vars(factory).values() if inspect.isfunction(f)]
    code += [factory.__code__] if inspect.isfunction(factory) else []
    own = code[0].co_filename if code else ""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if frame.filename == own]
    if not mine:
        return ""
    line = linecache.getline(own, mine[-1].lineno or 0).strip()
    return f"{shown_path(own)}:{mine[-1].lineno}" + (f": `{line}`" if line else "")


def shown_path(path: str) -> str:
    """As a reader would name it: relative to here if it lies below, "cell" in a notebook."""
    if path.startswith(("<", os.path.join(tempfile.gettempdir(), "ipykernel"))):
        return "cell"
    try:
        return Path(path).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Stuck is raised in whatever runs too long; only where an alarm can ring (main thread)."""
    main = threading.current_thread() is threading.main_thread()
    if not (main and hasattr(signal, "setitimer")):
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Stuck

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
