"""Exercise: what is asked, how it is tried, and which mistakes are worth a sentence.

An exercise lives in the package (``minilab/lab/exercises/labNN.py``, a tuple ``EXERCISES``) and a
notebook names it by its id only, so that editing a notebook never edits a check. Nothing here
runs a learner's code; see ``check.py``.
"""

from __future__ import annotations

import importlib
import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.seed import stream

EXERCISES_PACKAGE = "minilab.lab.exercises"
ID_PATTERN = re.compile(r"(\d+)([a-z]?)\.(\w+)")


@dataclass(frozen=True)
class Case:
    """One set of inputs. ``name`` says in a few words what is special about it."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Misconception:
    """A plausible mistake: ``wrong(*args)`` is the value it gives for a case's inputs.

    ``message`` names the misunderstanding and never the answer: it is printed when the learner's
    values equal those of ``wrong`` in every case tried.
    """

    name: str
    wrong: Callable[..., Any]
    message: str


@dataclass(frozen=True)
class Exercise:
    """A small function (its cases have inputs) or a decision (one case without inputs).

    id: "1.2" is the second exercise of lab 01. reference: computes what is expected from a case's
    inputs. cases: the inputs that are shown; a callable is asked for them at each check, so that a
    module of exercises imports no data. draw: makes one more case from a seeded ``random.Random``;
    ``draws`` of them catch an answer that is typed in. unit: of the result, "s", "ms", "fraction",
    "bytes", "1/s" or any word. rel, abs: tolerances. seconds: the limit for each call. core: False
    for the optional part of a lab.
    """

    id: str
    title: str
    reference: Callable[..., Any]
    cases: tuple[Case, ...] | Callable[[], tuple[Case, ...]]
    misconceptions: tuple[Misconception, ...] = ()
    hints: tuple[str, ...] = ()
    draw: Callable[[random.Random], Case] | None = None
    draws: int = 20
    unit: str = ""
    rel: float = 1e-6
    abs: float = 1e-12
    seconds: float = 5.0
    core: bool = True

    def shown(self) -> tuple[Case, ...]:
        """The cases with names, the ones a learner may read."""
        return self.cases if isinstance(self.cases, tuple) else self.cases()

    def drawn(self) -> Iterator[Case]:
        """The cases drawn at random: the same ones in every session of a student (``lab.seed``)."""
        if self.draw is not None:
            for number in range(self.draws):
                yield self.draw(stream(f"{self.id}/{number}"))

    @property
    def names(self) -> tuple[str, ...]:
        """The reference's parameter names, for showing a call."""
        return tuple(inspect.signature(self.reference).parameters)

    @property
    def lab(self) -> str:
        """Two digits, and a letter for a lab in two parts: "01", "03a"."""
        return lab_of(self.id)


def lab_of(exercise_id: object) -> str:
    """The lab that an id belongs to: "1.2" and "1.a" are of lab "01", "3b.2" of lab "03b"."""
    match = ID_PATTERN.fullmatch(exercise_id) if isinstance(exercise_id, str) else None
    if match is None:
        raise InputError(
            f"id {exercise_id!r}: an id is a text of lab, dot, and number or letter; "
            'write "1.2" or "1.a", with the quotes'
        )
    return f"{int(match[1]):02d}{match[2]}"


def lab_name(lab: str | int) -> str:
    """Two digits, "01", from 1, "1" or "01"; with the letter of a lab in two parts, "03a"."""
    match = re.fullmatch(r"(\d{1,2})([a-z]?)", str(lab))
    if match is None:
        raise InputError(f'lab {lab!r}: a lab is named by its number; write "01"')
    return f"{int(match[1]):02d}{match[2]}"


def exercises_of(lab: str | int) -> tuple[Exercise, ...]:
    """All exercises of a lab, in order; empty for a lab that has none yet."""
    module = _module(lab_name(lab))
    found: tuple[Exercise, ...] = getattr(module, "EXERCISES", ())
    return found


def find(exercise_id: object) -> Exercise:
    """The exercise with this id, or InputError naming those that exist."""
    exercises = exercises_of(lab_of(exercise_id))
    for exercise in exercises:
        if exercise.id == exercise_id:
            return exercise
    known = ", ".join(e.id for e in exercises)
    there = f"lab {lab_of(exercise_id)} has {known}" if known else "no exercise of that lab is here"
    raise InputError(f"exercise {exercise_id!r}: {there}; use an id that the notebook names")


def _module(lab: str) -> ModuleType | None:
    name = f"{EXERCISES_PACKAGE}.lab{lab}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in (name, EXERCISES_PACKAGE):
            return None
        raise  # an exercise module that lacks an import of its own: its author must see it
