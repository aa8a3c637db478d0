"""Lab 01, goodput: from latencies to good requests, from good requests to the knee."""

from __future__ import annotations

from minilab.lab.exercises.lab01.buckets import BUCKETS
from minilab.lab.exercises.lab01.budget import BUDGET
from minilab.lab.exercises.lab01.goodput import GOODPUT
from minilab.lab.exercises.lab01.held_back import HELD_BACK
from minilab.lab.exercises.lab01.itl import ITL
from minilab.lab.exercises.lab01.knee import KNEE

EXERCISES = (BUCKETS, ITL, GOODPUT, KNEE, BUDGET, HELD_BACK)
