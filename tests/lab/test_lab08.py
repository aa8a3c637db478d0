"""Lab 08: the rule that a learner writes is the rule by which the drill marks."""

from __future__ import annotations

import pytest

from minilab.judge.drill.case import Outcome, Played
from minilab.judge.drill.cases import case
from minilab.lab.check import evaluate
from minilab.lab.exercise import find
from minilab.lab.exercises.lab08.first_action import first_action


def test_taking_the_first_listed_action_is_refused() -> None:
    """The exercise gives the actions in no order: one that leaned on it would be right by luck."""
    assert evaluate(find("8.1"), lambda after: next(iter(after))).word == "not yet"


@pytest.mark.parametrize("leave", [0.3, 0.89, 0.91, 1.0])
def test_the_drill_marks_by_the_same_rule(leave: float) -> None:
    """A rule learned here that the drill would not follow teaches the wrong reflex."""
    goodput = {"replica": 0.55, "more": 1.0, "split": 0.2, "leave": leave}
    after = {key: Outcome(1.0, value, 2, 0.1, 0.02) for key, value in goodput.items()}
    run = Played(case("template"), None, after["leave"], after["leave"], after)  # type: ignore[arg-type]
    mine = first_action({key: (int(value * 1200), 600.0, 2) for key, value in goodput.items()})
    assert [mine] == run.good
