"""Every exercise of every lab, held to the same rules.

A lab whose exercises have no test of their own looks no different from one that has them, and rules
copied into a file per lab drift apart. So the rules stand here once and EXERCISES names each
exercise: one that is lost, renamed, moved between core and optional, or added without these rules
makes a test fail. ``vet.problems`` tries each misconception; the counts keep an exercise from
losing its wrong answers unnoticed. What only one lab has to hold is in that lab's own file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minilab.lab.check import evaluate, told
from minilab.lab.exercise import exercises_of, find, lab_of
from minilab.lab.vet import problems

LABS = Path(__file__).parents[2] / "labs"

EXERCISES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "00": (("0.1", "0.2", "0.3", "0.4"), ()),
    "01": (("1.1", "1.2", "1.3", "1.4"), ("1.D1", "1.D2")),
    "02": (("2.1", "2.2", "2.3", "2.4"), ("2.D1", "2.D2")),
    "03a": (("3a.1", "3a.2", "3a.3", "3a.4"), ("3a.D1",)),
    "03b": (("3b.1", "3b.2", "3b.3", "3b.4"), ("3b.D1",)),
    "04": (("4.1", "4.2", "4.3", "4.4"), ("4.D1", "4.D2")),
    "05": (("5.1", "5.2", "5.3", "5.4"), ("5.D1",)),
    "06": (("6.1", "6.2", "6.3", "6.4"), ("6.D1", "6.D2", "6.D3")),
    "07": (("7.1", "7.2", "7.3", "7.4"), ()),
    "08": (("8.1",), ()),
}
"""Lab -> ids of its core exercises, ids of its optional ones; in the order of the notebook."""

FOUR_MISCONCEPTIONS = {"1.D1", "2.D1", "3a.D1", "3b.D1"}
"""Optional exercises with fewer ways to go wrong than the five that all others name."""

THREE_HINTS = {"00", "04", "05", "06"}
"""Labs each of whose exercises has a third step before the learner is left alone; else two."""

NONSENSE: dict[str, object] = {
    "none": None,
    "zero": 0.0,
    "half": 0.5,
    "text": "p99",
    "echo": lambda *args: args[0],
    "nothing": lambda *args: None,
}

every_exercise: Callable[[Callable[..., None]], Callable[..., None]] = pytest.mark.parametrize(
    "exercise_id", [one for core, optional in EXERCISES.values() for one in (*core, *optional)]
)


def test_each_lab_is_listed() -> None:
    assert {path.stem.split("_")[0] for path in LABS.glob("*.ipynb")} == EXERCISES.keys()


@pytest.mark.parametrize("lab", EXERCISES)
def test_a_lab_has_these_exercises_and_no_other(lab: str) -> None:
    core, optional = EXERCISES[lab]
    listed = [*((one, True) for one in core), *((one, False) for one in optional)]
    assert [(exercise.id, exercise.core) for exercise in exercises_of(lab)] == listed


@every_exercise
def test_exercise_is_fit_for_a_learner(exercise_id: str) -> None:
    exercise = find(exercise_id)
    assert problems(exercise) == []
    assert len(exercise.misconceptions) >= (4 if exercise_id in FOUR_MISCONCEPTIONS else 5)
    assert len(exercise.hints) >= (3 if lab_of(exercise_id) in THREE_HINTS else 2)


@every_exercise
@pytest.mark.parametrize("wrong", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_with_a_sentence(exercise_id: str, wrong: object) -> None:
    """A check that raises, or that says no more than no, leaves a learner with nothing to do."""
    exercise = find(exercise_id)
    verdict = evaluate(exercise, wrong)
    assert verdict.word == "not yet"
    assert verdict.came_out and len(verdict.expected.split()) > 1
    lines = told(exercise, verdict).splitlines()
    assert "Traceback" not in "".join(lines)
    assert {line.split()[0] for line in lines[1:]} <= {
        "tried", "came", "expected", "likely", "next",
    }  # fmt: skip
