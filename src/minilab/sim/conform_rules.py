"""The rules of conformance: what a scheduler must keep, each in a sentence, and how one is broken.

They hold for any policy. The last two are promises that a class makes of itself, in ``claims``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

RULES: dict[str, str] = {
    "interface": "it has what an instance asks for, and returns what was agreed",
    "raises": "it raises nothing of its own",
    "admission": "it refuses a request exactly if the pool could never hold it",
    "budget": "a step computes at most max_num_batched_tokens tokens",
    "slots": "at most max_num_seqs requests run",
    "plan": "a plan adds up, and names who came in and who lost its blocks",
    "causality": "a step computes what is known and not computed yet, and nothing else",
    "blocks": "a block has one owner unless its text is shared; free + used is the pool",
    "kv": "what a step reads is what was computed for that very text and salt",
    "tokens": "each request gets the tokens it asked for, and ends then",
    "returned": "who waits or has ended holds no blocks",
    "progress": "while somebody waits or runs a step is planned, and it all ends",
    "starvation": "nobody is overtaken by more than 50 requests that came later",
    "repeats": "a plan that is said to repeat gives the same run as step by step",
    "fcfs": "claimed: requests are admitted in the order in which they came",
    "plain": "claimed: the run is that of PlainScheduler, to the last gap",
}
CLAIMS = ("fcfs", "plain")
MOST_OVERTAKEN = 50


class Broken(Exception):
    """A rule is broken: which, what was seen, and what is likely wrong (empty, never guessed)."""

    def __init__(self, rule: str, what: str, likely: str = "") -> None:
        super().__init__(what)
        self.rule, self.what, self.likely = rule, what, likely


class Stuck(BaseException):
    """A call does not return. No Exception, so that ``except Exception`` does not swallow it."""


def broken(rule: str, what: str, likely: str = "") -> NoReturn:
    """Raise it."""
    raise Broken(rule, what, likely)


def ids(requests: Iterable[object]) -> str:
    """ "1, 2 and 5", or "none"; of requests or of their ids."""
    found = [str(getattr(request, "id", request)) for request in requests]
    if len(found) < 2:
        return "".join(found) or "none"
    return f"{', '.join(found[:-1])} and {found[-1]}"
