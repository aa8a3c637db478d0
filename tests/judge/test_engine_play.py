"""One scheduler, two executors: an engine whose steps last what the cost says is the simulator."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

from minilab.engine import record
from minilab.facts.cost import StepShape, WfksCost
from minilab.facts.errors import InputError
from minilab.facts.workload import closed_loop, synthetic
from minilab.judge import engine_play
from minilab.judge.engine_calibrate import EngineSetup, greedy
from minilab.judge.engine_play import figures, play
from minilab.sim.experiment import Experiment

COST = WfksCost(w=0.011, f=0.0007, k=3e-6, s=0.0013, q=2e-7)


class Clock:
    """Virtual seconds; only a step and a sleep let them pass."""

    def __init__(self) -> None:
        self.now = 5.0
        self.slept = 0

    def perf_counter(self) -> float:
        return self.now

    def perf_counter_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    for module in (engine_play, record):
        stand_in = SimpleNamespace(
            perf_counter=found.perf_counter,
            perf_counter_ns=found.perf_counter_ns,
            sleep=found.sleep,
        )
        monkeypatch.setattr(module, "time", stand_in)
    return found


def timed_by_cost(llm, clock: Clock) -> None:
    """Every step of ``llm`` takes as long as COST says, on ``clock``."""
    execute = llm.executor.execute

    def slow(plan):
        shape = StepShape(plan.num_tokens, plan.num_seqs, plan.context, plan.pairs)
        clock.now += COST.seconds(shape)
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
    log = play(llm, work, greedy)
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
    first, second = (play(llm, work, greedy) for _ in range(2))
    assert len(first) == len(second) == 6
    gap = np.diff(second.requests["arrival"])
    assert np.allclose(gap, [b.arrival - a.arrival for a, b in itertools.pairwise(work.requests)])
    assert not llm.executor.texts


def test_what_cannot_be_played(clock) -> None:
    """A closed loop has no arrivals of its own, and a prompt may be too long for the model."""
    llm = SETUPS["roomy"].load()
    with pytest.raises(InputError, match="wait for others"):
        play(llm, closed_loop(2, 5, 20, 5), greedy)
    with pytest.raises(InputError, match="may have"):
        play(llm, synthetic(1.0, 2, 100_000, 5), greedy)
