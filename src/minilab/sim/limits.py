"""Limits of one simulation: what would fill the memory, or not fit the record, is refused early."""

from __future__ import annotations

from minilab.facts.errors import InputError
from minilab.facts.ticks import TICKS_PER_SECOND

MAX_BLOCKS = 50_000_000
"""KV blocks of all instances together: more would take gigabytes to list."""

MAX_REQUESTS = 5_000_000
"""Synthetic requests of one run: more would fill the memory of a small machine."""

MAX_SECONDS = (1 << 63) / TICKS_PER_SECOND
"""Simulated time whose ticks fit the int64 of a run log: six days."""


def check_blocks(instances: int, blocks: int) -> None:
    """Refuse more KV blocks than ``MAX_BLOCKS``.

    Raises:
        InputError: with the count, the limit and the way out.
    """
    if instances * blocks > MAX_BLOCKS:
        raise InputError(
            f"{instances} instances of {blocks} KV blocks; at most {MAX_BLOCKS} blocks in all; "
            "use larger blocks, fewer blocks or fewer instances"
        )


def check_requests(count: int) -> None:
    """Refuse more synthetic requests than ``MAX_REQUESTS``.

    Raises:
        InputError: with the count, the limit and the way out.
    """
    if count > MAX_REQUESTS:
        raise InputError(f"limit {count}; at most {MAX_REQUESTS} synthetic requests; lower it")


def check_time(seconds: float) -> None:
    """Refuse a time that int64 ticks cannot hold, NaN included.

    Raises:
        InputError: with the time, the limit and the way out.
    """
    if not seconds < MAX_SECONDS:
        raise InputError(
            f"the run lasts {seconds:g} s; at most {MAX_SECONDS:g} s (six days) fit a run log; "
            "take fewer requests (limit) or let them arrive sooner (rate, speedup)"
        )
