"""Lab 02, the prefill/decode split: two queues, a wire, the break-even prompt, and a rule."""

from __future__ import annotations

from minilab.lab.exercises.lab02.break_even import BREAK_EVEN
from minilab.lab.exercises.lab02.gather import GATHER
from minilab.lab.exercises.lab02.pools import POOLS
from minilab.lab.exercises.lab02.rule import RULE
from minilab.lab.exercises.lab02.two_queues import TWO_QUEUES
from minilab.lab.exercises.lab02.wire import WIRE

EXERCISES = (TWO_QUEUES, WIRE, BREAK_EVEN, RULE, GATHER, POOLS)
