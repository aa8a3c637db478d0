"""One scheduler, two executors: an engine whose steps last what the cost says is the simulator."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

from minilab.facts.cost import StepShape, WfksCost
from minilab.facts.errors import InputError
from minilab.facts.workload import closed_loop, synthetic
from minilab.judge.engine_calibrate import EngineSetup, greedy
from minilab.judge.engine_clock import CpuClock, WallClock
from minilab.judge.engine_play import figures, play
from minilab.sim.experiment import Experiment

COST = WfksCost(w=0.011, f=0.0007, k=3e-6, s=0.0013, q=2e-7)


class Virtual:
    """Virtual seconds; only a step and a sleep let them pass."""

    def __init__(self) -> None:
        self.seconds = 5.0
        self.slept = 0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.seconds += seconds


@pytest.fixture
def clock() -> Virtual:
    return Virtual()


def timed_by_cost(llm, clock: Virtual) -> None:
    """Every step of ``llm`` takes as long as COST says, on ``clock``."""
    execute = llm.executor.execute

    def slow(plan):
        shape = StepShape(plan.num_tokens, plan.num_seqs, plan.context, plan.pairs)
        clock.seconds += COST.seconds(shape)
        return execute(plan)

    llm.executor.execute = slow


SETUPS = {
    "roomy": EngineSetup("tiny", 400, max_num_batched_tokens=64, max_num_seqs=8),
    "chunks of 16": EngineSetup("tiny", 400, max_num_batched_tokens=16, max_num_seqs=8),
    "two at a time": EngineSetup("tiny", 400, max_num_batched_tokens=64, max_num_seqs=2),
    "preempting": EngineSetup("tiny", 14, max_num_batched_tokens=64, max_num_seqs=8),
}


@pytest.mark.parametrize("name", SETUPS)
def test_engine_is_the_simulator_with_real_steps(name, clock) -> None:
    """Same first tokens, ends, gaps and preemptions: what remains of a prediction's error is time.

    A scheduler that behaved differently in the engine, an arrival seen a step too early or a chunk
    cut elsewhere would show as another time line.
    """
    setup = SETUPS[name]
    llm = setup.load()
    timed_by_cost(llm, clock)
    work = synthetic(9.0, 25, 60, 14, seed=4)
    log = play(llm, work, greedy, clock=clock)
    experiment = Experiment(
        cost='{"w": 0.011, "f": 0.0007, "k": 3e-6, "s": 0.0013, "q": 2e-7}',
        kv_blocks=setup.num_blocks,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        max_num_seqs=setup.max_num_seqs,
    )
    said = experiment.run(work)
    assert said.finished.all() and log.finished.all()
    assert log.requests["preemptions"].tolist() == said.requests["preemptions"].tolist()
    assert (log.requests["preemptions"].sum() > 0) == (name == "preempting")
    for column in ("scheduled", "first_token", "finish"):
        here = log.requests[column] - log.requests["arrival"]
        there = said.requests[column] - said.requests["arrival"]
        assert np.abs(here - there).max() < 1e-6, column
    assert np.abs(log.gaps.to_lists().values - said.gaps.to_lists().values).max() < 1e-6
    assert figures(log) == pytest.approx(figures(said), abs=1e-6)
    assert clock.slept > 0  # the engine was idle at times, so both ways of waiting were used


def test_second_run_on_one_engine(clock) -> None:
    """A warm engine's log has only the requests of its own run, and they arrive when due."""
    llm = SETUPS["roomy"].load()
    timed_by_cost(llm, clock)
    work = synthetic(9.0, 6, 40, 5, seed=2)
    first, second = (play(llm, work, greedy, clock=clock) for _ in range(2))
    assert len(first) == len(second) == 6
    gap = np.diff(second.requests["arrival"])
    assert np.allclose(gap, [b.arrival - a.arrival for a, b in itertools.pairwise(work.requests)])
    assert not llm.executor.texts


def test_what_cannot_be_played(clock) -> None:
    """A closed loop has no arrivals of its own, and a prompt may be too long for the model."""
    llm = SETUPS["roomy"].load()
    with pytest.raises(InputError, match="wait for others"):
        play(llm, closed_loop(2, 5, 20, 5), greedy, clock=clock)
    with pytest.raises(InputError, match="may have"):
        play(llm, synthetic(1.0, 2, 100_000, 5), greedy, clock=clock)


def test_cpu_clock_counts_work_and_not_sleep() -> None:
    """Others' turns on the core must not count, an arrival that is waited for must."""
    watch = CpuClock()
    begin = watch.now()
    time.sleep(0.2)
    assert watch.now() - begin < 0.1
    watch.sleep(3.0)
    sum(range(300_000))
    assert 3.0 < watch.now() - begin < 3.5


def test_both_clocks_play_a_real_engine() -> None:
    """No virtual steps here: every token comes after the one before, in either kind of seconds."""
    for kind in (CpuClock, WallClock):
        log = play(SETUPS["roomy"].load(), synthetic(60.0, 5, 30, 4), greedy, clock=kind())
        ttft = log.requests["first_token"] - log.requests["arrival"]
        assert log.finished.all() and (ttft > 0).all() and log.gaps.to_lists().values.min() > 0
