"""vet.problems: an exercise that would mislead is found before a learner meets it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilab.lab.exercise import Case, Exercise, Misconception, exercises_of
from minilab.lab.vet import problems

SOUND = Exercise(
    "90.7",
    "Twice",
    lambda x: 2 * x,
    cases=(Case((21,)), Case((34,))),
    misconceptions=(Misconception("square", lambda x: x * x, "squared"),),
    hints=("Add it to itself.",),
)


def test_the_demo_exercises_and_a_sound_one_have_no_problem() -> None:
    assert [p for e in (*exercises_of(90), SOUND) for p in problems(e)] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hints": ()}, "no hints"),
        ({"cases": ()}, "no cases"),
        ({"hints": ("It is 42 for the first.",)}, "hint 1 tells the answer"),
        ({"misconceptions": (Misconception("m", lambda x: x + x, "?"),)}, "not caught"),
        (
            {"misconceptions": (Misconception("m", lambda x: x * x, "it is 68, not that"),)},
            "tells the answer",
        ),
        (
            {
                "misconceptions": (
                    Misconception("any", lambda x: x * x, "squared"),
                    Misconception("shadowed", lambda x: x**2, "never seen"),
                )
            },
            "'shadowed' is not named",
        ),
    ],
)
def test_a_flaw_is_found(change: dict[str, object], says: str) -> None:
    assert any(says in problem for problem in problems(replace(SOUND, **change)))


def test_a_reference_that_fails_its_own_check_is_found() -> None:
    calls = iter(range(10_000))
    unsteady = replace(SOUND, reference=lambda x: next(calls), misconceptions=())
    assert any("reference does not pass" in problem for problem in problems(unsteady))
