"""Lab 08, on call: which action comes first."""

from __future__ import annotations

from minilab.lab.exercises.lab08.first_action import FIRST_ACTION

EXERCISES = (FIRST_ACTION,)
