"""Lab 07, the selector: three transitions by arithmetic, and a lever that loses."""

from __future__ import annotations

from minilab.lab.exercises.lab07.crossover import CROSSOVER
from minilab.lab.exercises.lab07.drafts import DRAFTS
from minilab.lab.exercises.lab07.link import LINK
from minilab.lab.exercises.lab07.pool import POOL

EXERCISES = (CROSSOVER, LINK, POOL, DRAFTS)
