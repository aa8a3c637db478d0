"""Lab 03a, prefix cache and routing: what a hit is, what it is worth, and who gets the request."""

from __future__ import annotations

from minilab.lab.exercises.lab03a.floor import FLOOR
from minilab.lab.exercises.lab03a.hashes import HASHES
from minilab.lab.exercises.lab03a.hits import HITS
from minilab.lab.exercises.lab03a.rates import RATES
from minilab.lab.exercises.lab03a.router import ROUTER

EXERCISES = (HASHES, HITS, RATES, ROUTER, FLOOR)
