"""Hints in steps: each call shows the next one, so that nobody reads further than they need."""

from __future__ import annotations

from minilab.lab.exercise import find
from minilab.lab.progress import session


def hint(exercise_id: str) -> None:
    """Print the next hint for an exercise; after the last one, the last one again."""
    exercise = find(exercise_id)
    if not exercise.hints:
        print(f"Exercise {exercise.id} has no hints; its check says what came out.")
        return
    shown = session().hints
    number = min(shown.get(exercise.id, 0) + 1, len(exercise.hints))
    shown[exercise.id] = number
    print(f"Hint {number} of {len(exercise.hints)} for exercise {exercise.id}")
    print(f"  {exercise.hints[number - 1]}")


def next_hint(exercise_id: str) -> str:
    """What a failed check says about hints: the call that shows the next, or that all are out."""
    exercise = find(exercise_id)
    number = session().hints.get(exercise.id, 0) + 1
    total = len(exercise.hints)
    if number > total:
        return "all hints are shown" if total else ""
    return f'lab.hint("{exercise.id}") shows hint {number} of {total}'
