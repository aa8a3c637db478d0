"""Lab 03b, tiers and tenants: whose block it is, where it goes, and when fetching it pays."""

from __future__ import annotations

from minilab.lab.exercises.lab03b.break_even import BREAK_EVEN
from minilab.lab.exercises.lab03b.keys import KEYS
from minilab.lab.exercises.lab03b.load import LOAD
from minilab.lab.exercises.lab03b.lru import LRU
from minilab.lab.exercises.lab03b.permutation import PERMUTATION

EXERCISES = (KEYS, LOAD, BREAK_EVEN, LRU, PERMUTATION)
