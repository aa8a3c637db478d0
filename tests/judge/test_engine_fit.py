"""The fit of timed steps: it finds what made them, and says what it cannot explain."""

from __future__ import annotations

import random

import pytest

from minilab.facts.cost import StepShape, WfksCost
from minilab.facts.errors import InputError
from minilab.judge.engine_fit import error_summary, fit_steps, medians, residuals
from minilab.judge.engine_steps import Point, Timed, default_points
from minilab.judge.engine_store import StepStore

TRUE = WfksCost(w=0.05, f=0.003, k=4e-6, s=0.002, q=1.5e-6)


def shape_of(point: Point) -> StepShape:
    n = point.chunk
    return StepShape(
        point.decodes + n,
        point.decodes + bool(n),
        point.decodes * point.context,
        n * point.start + n * (n + 1) // 2,
    )


POINTS = default_points(16, 256, 16384, 2048)
SHAPES = [shape_of(point) for point in POINTS]


def test_exact_steps_give_back_their_cost() -> None:
    """Without noise all five numbers come back."""
    found = fit_steps(SHAPES, [TRUE.seconds(shape) for shape in SHAPES])
    for name in "wfksq":
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-3), name


def test_noise_and_one_wild_step() -> None:
    """5 % of noise and one step made 4 times as long by a neighbour: predictions stay close."""
    dice = random.Random(1)
    seconds = [TRUE.seconds(shape) * dice.uniform(0.95, 1.05) for shape in SHAPES]
    seconds[3] *= 4
    found = fit_steps(SHAPES, seconds)
    for shape in SHAPES:
        assert found.seconds(shape) == pytest.approx(TRUE.seconds(shape), rel=0.05)


def test_cost_that_is_not_there_is_zero() -> None:
    """A term without any cost must not come back as a small one that grows with the workload."""
    true = WfksCost(w=0.05, f=0.003, k=0.0, s=0.0, q=0.0)
    found = fit_steps(SHAPES, [true.seconds(shape) for shape in SHAPES])
    assert found.w == pytest.approx(0.05, rel=0.01)
    largest = max(SHAPES, key=lambda shape: shape.context)
    assert found.k * largest.context < 0.01 * true.seconds(largest)


def test_too_few_steps() -> None:
    """Four steps cannot tell five numbers."""
    with pytest.raises(InputError, match="4 kinds of steps for 5"):
        fit_steps(SHAPES[:4], [0.1] * 4)


def test_residuals_have_the_sign_of_the_prediction() -> None:
    """+10 %: the cost says 10 % more than was measured."""
    rows = [(POINTS[0], SHAPES[0], TRUE.seconds(SHAPES[0]) / 1.1)]
    (row,) = residuals(TRUE, rows)
    assert row["error"] == pytest.approx(0.1) and row["step"] == POINTS[0].name
    assert error_summary([row])["max"] == pytest.approx(0.1)


def test_middle_of_the_rounds_counts() -> None:
    """One slow round must not move a point."""
    timed = [Timed(SHAPES[0], s) for s in (0.1, 0.9, 0.2)]
    ((point, _, seconds),) = medians({POINTS[0]: timed})
    assert (point, seconds) == (POINTS[0], 0.2)


# -- the store ------------------------------------------------------------------------------------

ABOUT = {"seed": 0, "setup": {"model": "tiny"}}
STEPS = [Timed(StepShape(3, 2, 100, 7), 0.01), Timed(StepShape(3, 2, 102, 7), 0.02)]


def test_store_remembers(tmp_path) -> None:
    """What was measured before an interruption is not measured again."""
    path = tmp_path / "steps.jsonl"
    StepStore(path, ABOUT).keep(2, POINTS[0], STEPS)
    again = StepStore(path, ABOUT)
    assert again.known(2, POINTS[0]) == STEPS
    assert again.known(1, POINTS[0]) is None and again.known(2, POINTS[1]) is None


def test_line_cut_off_is_measured_again(tmp_path) -> None:
    """A process that was killed while it wrote."""
    path = tmp_path / "steps.jsonl"
    store = StepStore(path, ABOUT)
    store.keep(0, POINTS[0], STEPS)
    store.keep(0, POINTS[1], STEPS)
    path.write_text(path.read_text()[:-9])
    again = StepStore(path, ABOUT)
    assert len(again) == 1 and again.known(0, POINTS[1]) is None


@pytest.mark.parametrize("text", ["", "{}\n", "not json\n", '["a"]\n'])
def test_no_store(tmp_path, text) -> None:
    """A file of something else is not appended to."""
    path = tmp_path / "steps.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match="no store of steps"):
        StepStore(path, ABOUT)
    assert path.read_text() == text


def test_steps_of_another_engine_are_refused(tmp_path) -> None:
    """Two machines in one fit would describe neither."""
    path = tmp_path / "steps.jsonl"
    StepStore(path, ABOUT)
    with pytest.raises(InputError, match="seed 0"):
        StepStore(path, {**ABOUT, "seed": 1})
