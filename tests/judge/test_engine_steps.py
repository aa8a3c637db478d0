"""Steps made to order on a tiny engine: they are the ordered ones, and nothing stays behind."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch")

from minilab.facts.errors import InputError
from minilab.judge.engine_calibrate import EngineSetup, greedy
from minilab.judge.engine_steps import Point, StepBench, default_points, sweep

SETUP = EngineSetup("tiny", num_blocks=300, max_num_batched_tokens=64, max_num_seqs=6)


@pytest.fixture
def llm():
    return SETUP.load(prefix_cache=False)


def idle(llm) -> bool:
    """Nobody runs or waits, and every block is free."""
    scheduler = llm.scheduler
    quiet = not scheduler.num_running and not scheduler.num_waiting and not llm.executor.texts
    return quiet and scheduler.pool.used == 0


def points(llm) -> list[Point]:
    return default_points(6, 64, 300 * 16, llm.max_model_len)


def test_steps_are_those_ordered(llm) -> None:
    """A batch that lost a decode, or a chunk cut in two, would be fitted under a wrong shape."""
    chosen = points(llm)
    assert len(chosen) > 12 and any(p.decodes and p.chunk for p in chosen)
    assert any(p.start for p in chosen)
    bench = StepBench(llm, greedy)
    for point in chosen:
        for timed in bench.measure(point):
            shape = timed.shape
            assert shape.num_seqs == point.decodes + bool(point.chunk), point
            assert shape.num_tokens == point.decodes + point.chunk, point
            n = point.chunk
            assert shape.pairs == n * point.start + n * (n + 1) // 2
            assert shape.context >= point.decodes * point.context
            assert timed.seconds > 0
        assert idle(llm), point


def test_context_is_that_ordered(llm) -> None:
    """One sequence has no neighbours to wait for, so its context is exact, one more each step."""
    steps = StepBench(llm, greedy).measure(Point(1, 200), steps=3)
    assert [timed.shape.context for timed in steps] == [200, 201, 202]


def test_only_timed_steps_are_computed(llm, monkeypatch) -> None:
    """The way to a long context is not computed; the timed steps are, once each."""
    calls = []
    forward = type(llm.executor.model).forward

    def counted(self, batch):
        calls.append(len(batch.token_ids))
        return forward(self, batch)

    monkeypatch.setattr(type(llm.executor.model), "forward", counted)
    bench = StepBench(llm, greedy)
    bench.measure(Point(4, 100), steps=3)
    assert calls == [4, 4, 4]
    calls.clear()
    bench.measure(Point(3, 50, 20))
    bench.measure(Point(0, 0, 20, 128))
    assert calls == [23, 20]


@pytest.mark.parametrize("point", [Point(3, 50, 20, 64), Point(0, 0, 20, 30), Point(1, 3000)])
def test_steps_that_cannot_be_had(llm, point) -> None:
    """Another chunk than the one ordered would come out: refuse, and measure nothing."""
    with pytest.raises(InputError, match="not with 64 tokens a step"):
        StepBench(llm, greedy).measure(point)
    assert idle(llm)


def test_interrupted_measurement_leaves_nothing(llm, monkeypatch) -> None:
    """Ctrl-C in the middle of a step: the next point must find an empty engine."""

    def broken(self, batch):
        raise KeyboardInterrupt

    bench = StepBench(llm, greedy)
    with monkeypatch.context() as patch:
        patch.setattr(type(llm.executor.model), "forward", broken)
        with pytest.raises(KeyboardInterrupt):
            bench.measure(Point(3, 50))
    assert idle(llm)
    assert len(bench.measure(Point(3, 50))) == 3


def test_prefix_cache_is_refused() -> None:
    """With it on, a prompt seen before would skip the very work that is to be timed."""
    with pytest.raises(InputError, match="prefix cache is on"):
        StepBench(SETUP.load(prefix_cache=True), greedy)


def test_each_round_has_another_order() -> None:
    """A machine that slows down over a round would otherwise always punish the same points."""

    class Told:
        def __init__(self) -> None:
            self.order: list[Point] = []

        def measure(self, point: Point) -> list:
            self.order.append(point)
            return [point]

    bench, many = Told(), [Point(1, c) for c in range(2, 14)]
    found = sweep(bench, many, 2, lambda *_: None, lambda *_: None)
    first, second = bench.order[:12], bench.order[12:]
    assert sorted(first) == sorted(second) == many and first != second
    assert all(len(found[point]) == 2 for point in many)
