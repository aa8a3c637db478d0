"""SplitOutput: what a request came to that went through two processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SplitOutput:
    """What a request came to.

    Attributes:
        token_ids, text, finish_reason, stop_reason: as in ``engine.output``; "error" if nobody will
            finish it, and then ``error`` says why.
        handed_over: whether the decode process had a part in it.
        num_preemptions: times it lost its blocks, on both sides.
    """

    token_ids: list[int]
    text: str
    finish_reason: str
    stop_reason: int | str | None = None
    error: str = ""
    handed_over: bool = False
    num_preemptions: int = 0
