"""fit: tokens, requests and lengths that a number of bytes holds."""

import math
from typing import Any


def tokens(left: float, held: Any) -> int:
    """Tokens in whole blocks, every layer charged for every token, as engines print them."""
    size = (held.per_token + held.indexer) * held.block
    return max(0, math.floor(left / size)) * int(held.block) if size else 0


def concurrency(left: float, held: Any, length: int) -> float:
    """Requests of ``length`` tokens that fit at once ("Maximum concurrency" of vLLM's log)."""
    if held.uniform:
        return float(tokens(left, held) // held.block / math.ceil(length / held.block))
    return float(max(0.0, left / held.sequence(length)))


def longest(left: float, held: Any, window: int, sequences: int) -> Any:
    """The longest length, in whole blocks, of ``sequences`` requests at once; None: no limit."""
    block = held.block
    if held.uniform:
        return tokens(left, held) // block // sequences * block
    share = left / sequences
    if not held.full + held.indexer and held.sequence(max(window, block)) <= share:
        return None
    fits, too_long = 0, 1
    while held.sequence(too_long * block) <= share:
        fits, too_long = too_long, too_long * 2
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if held.sequence(middle * block) <= share:
            fits = middle
        else:
            too_long = middle
    return fits * block
