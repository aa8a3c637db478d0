"""Lab 08: the rule that a learner writes is the rule by which the drill marks."""

from __future__ import annotations

import pytest

from minilab.judge.drill.case import Outcome, Played
from minilab.judge.drill.cases import case
from minilab.lab.check import evaluate
from minilab.lab.exercise import exercises_of
from minilab.lab.exercises.lab08.first_action import first_action
from minilab.lab.vet import problems

EXERCISES = exercises_of("08")


def test_lab_08_has_its_exercise() -> None:
    assert [e.id for e in EXERCISES] == ["8.1"]
    assert problems(EXERCISES[0]) == []
    assert len(EXERCISES[0].misconceptions) >= 5


@pytest.mark.parametrize(
    "wrong",
    [None, "leave", lambda after: None, lambda after: next(iter(after))],
    ids=["none", "text", "nothing", "first"],
)
def test_nonsense_is_refused_without_a_traceback(wrong: object) -> None:
    assert evaluate(EXERCISES[0], wrong).word == "not yet"


@pytest.mark.parametrize("leave", [0.3, 0.89, 0.91, 1.0])
def test_the_drill_marks_by_the_same_rule(leave: float) -> None:
    """A rule learned here that the drill would not follow teaches the wrong reflex."""
    goodput = {"replica": 0.55, "more": 1.0, "split": 0.2, "leave": leave}
    after = {key: Outcome(1.0, value, 2, 0.1, 0.02) for key, value in goodput.items()}
    run = Played(case("template"), None, after["leave"], after["leave"], after)  # type: ignore[arg-type]
    mine = first_action({key: (int(value * 1200), 600.0, 2) for key, value in goodput.items()})
    assert [mine] == run.good
