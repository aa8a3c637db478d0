"""Lab 04, speculative decoding: guessing, judging, a sampler that is wrong, and when it loses."""

from __future__ import annotations

from minilab.lab.exercises.lab04.accept import ACCEPT
from minilab.lab.exercises.lab04.lookup import LOOKUP
from minilab.lab.exercises.lab04.sampler import SAMPLER
from minilab.lab.exercises.lab04.speed import SPEED
from minilab.lab.exercises.lab04.table import TABLE
from minilab.lab.exercises.lab04.tree import TREE

EXERCISES = (LOOKUP, ACCEPT, SAMPLER, SPEED, TREE, TABLE)
