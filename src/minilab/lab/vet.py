"""Vet an exercise: what its author must know before a learner meets it. For tests, not for labs."""

from __future__ import annotations

import re
from typing import Any

from minilab.lab.check import Verdict, evaluate
from minilab.lab.compare import as_number, show_value
from minilab.lab.exercise import Exercise, Misconception, lab_of
from minilab.lab.progress import NOT_YET, PASSED

_TELLS_NOTHING = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 60, 100, 1000}  # as digits in a sentence


def problems(exercise: Exercise) -> list[str]:
    """What is wrong with an exercise, one sentence each; empty when it may be used.

    The reference passes its own check; each misconception is caught and named by its own message;
    there are hints; no message gives an expected value of the shown cases away.
    """
    lab_of(exercise.id)
    found = [] if exercise.hints else [f"{exercise.id}: has no hints"]
    shown = exercise.shown()
    if not shown:
        return [*found, f"{exercise.id}: has no cases, so that anything would pass"]
    is_function = any(case.args or case.kwargs for case in shown)
    own = exercise.reference if is_function else exercise.reference()
    if evaluate(exercise, own).word != PASSED:
        found.append(f"{exercise.id}: the reference does not pass its own check")
    answers = [exercise.reference(*case.args, **case.kwargs) for case in shown]
    for misconception in exercise.misconceptions:
        verdict = evaluate(exercise, misconception.wrong if is_function else misconception.wrong())
        found += _about(exercise, misconception, verdict)
        if _gives_away(f"{verdict.expected} {verdict.likely}", answers):
            found.append(f"{exercise.id}: the message of {misconception.name!r} tells the answer")
    found += [
        f"{exercise.id}: hint {number} tells the answer"
        for number, text in enumerate(exercise.hints, 1)
        if _gives_away(text, answers)
    ]
    return found


def _about(exercise: Exercise, misconception: Misconception, verdict: Verdict) -> list[str]:
    where = f"{exercise.id}: misconception {misconception.name!r}"
    if verdict.word != NOT_YET:
        return [f"{where} is not caught: its value is right, or it is {verdict.word}"]
    if verdict.likely != misconception.message:
        return [f"{where} is not named: the check says {verdict.reason!r}"]
    return []


def _gives_away(text: str, answers: list[Any]) -> bool:
    words = set(re.findall(r"[\w.+-]*\w", text.casefold()))
    return any(_as_word(answer) in words for answer in answers)


def _as_word(answer: Any) -> str | None:
    """How an answer would look within a sentence; None for one that no sentence could tell."""
    number = as_number(answer)
    if number is not None:
        return None if number in _TELLS_NOTHING else show_value(number)
    return answer.strip().casefold() if isinstance(answer, str) and len(answer) > 1 else None
