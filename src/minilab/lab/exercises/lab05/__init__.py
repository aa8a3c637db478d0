"""Lab 05, quantisation: bytes and tokens, scales, what an error measure hides, and break-even."""

from __future__ import annotations

from minilab.lab.exercises.lab05.codec import CODEC
from minilab.lab.exercises.lab05.impostors import IMPOSTORS
from minilab.lab.exercises.lab05.round_trip import ROUND_TRIP
from minilab.lab.exercises.lab05.tokens import TOKENS
from minilab.lab.exercises.lab05.worth import WORTH

EXERCISES = (TOKENS, ROUND_TRIP, IMPOSTORS, WORTH, CODEC)
