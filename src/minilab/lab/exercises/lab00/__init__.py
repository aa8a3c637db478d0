"""Lab 00, from engine to production: the four decisions of a toy engine."""

from __future__ import annotations

from minilab.lab.exercises.lab00.blocks import BLOCKS
from minilab.lab.exercises.lab00.chunks import CHUNKS
from minilab.lab.exercises.lab00.slot import SLOT
from minilab.lab.exercises.lab00.victims import VICTIMS

EXERCISES = (SLOT, BLOCKS, CHUNKS, VICTIMS)
