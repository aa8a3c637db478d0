"""Numbers of one's own: everybody's without a name, a student's with one."""

from __future__ import annotations

import random

import pytest

from minilab.lab import seed
from minilab.lab.exercise import exercises_of
from minilab.lab.vet import problems

LABS = ("00", "01", "02", "03a", "03b", "05", "07")


def drawn(lab: str) -> dict[str, list[str]]:
    return {e.id: [repr(c.args) for c in e.drawn()] for e in exercises_of(lab) if e.draw}


def test_without_a_name_the_numbers_are_everybody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seed.VARIABLE, raising=False)
    assert seed.stream("0.1/3").random() == random.Random("0.1/3").random()
    assert seed.whole("x", 10, 20, 5) in (10, 15, 20)
    assert seed.pick("x", "abc") == seed.pick("x", "abc")


@pytest.mark.parametrize("lab", LABS)
def test_the_cases_of_a_check_are_a_student_s(lab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number copied from the neighbour must be wrong for at least one case."""
    found = []
    for name in ("ada", "bob", "ada"):
        monkeypatch.setenv(seed.VARIABLE, name)
        found.append(drawn(lab))
    ada, bob, again = found
    assert ada == again
    assert ada, f"lab {lab} draws nothing"
    for exercise, cases in ada.items():
        assert cases != bob[exercise], exercise


def test_an_exercise_stays_fit_for_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other draws must not make a right answer wrong, or a mistake unseen."""
    for name in ("ada", "bob"):
        monkeypatch.setenv(seed.VARIABLE, name)
        assert [p for e in exercises_of("00") for p in problems(e)] == []
