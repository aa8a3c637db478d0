"""Lab 02's exercises: the reference passes, each misconception is caught and named, nothing leaks.

``vet.problems`` tries every misconception of every exercise; the counts below keep an exercise from
losing its wrong answers unnoticed.
"""

from __future__ import annotations

import pytest

from minilab.lab.check import evaluate
from minilab.lab.exercise import Exercise, exercises_of
from minilab.lab.vet import problems

EXERCISES = exercises_of("02")


def test_lab_02_has_its_exercises() -> None:
    assert [e.id for e in EXERCISES] == ["2.1", "2.2", "2.3", "2.4", "2.D1", "2.D2"]
    assert [e.core for e in EXERCISES] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_exercise_is_fit_for_a_learner(exercise: Exercise) -> None:
    assert problems(exercise) == []
    assert len(exercise.misconceptions) >= (5 if exercise.core else 4)
    assert len(exercise.hints) >= 2


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
@pytest.mark.parametrize(
    "wrong", [None, 0.0, "p99", lambda *args: args[0]], ids=["none", "zero", "text", "echo"]
)
def test_nonsense_is_refused_without_a_traceback(exercise: Exercise, wrong: object) -> None:
    assert evaluate(exercise, wrong).word == "not yet"
