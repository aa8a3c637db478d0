"""Prompts: a workload's content segments as token ids, or as text of one token a word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from minilab.facts.errors import InputError
from minilab.facts.prompt_tokens import prompt_tokens
from minilab.facts.request import Request

WORDS = tuple(
    re.findall(
        r"\w+",
        "the of and to in is that it was for on are as with his they at be this from have or by "
        "one had not but what all were when we there can an your which their said if do will each "
        "about how up out them then she many some so these would other into has more her two like "
        "him see time could no make than first been its who now people my made over did down only "
        "way find use may water long little very after words called just where most know",
    )
)
"""Common words, each a single token in the usual English vocabularies."""


@dataclass(frozen=True)
class IdPrompts:
    """Prompts as token ids from ``low`` up to ``high``; ``seed`` changes all of them."""

    low: int = 100
    high: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high - 1:
            raise InputError(
                f"token ids from {self.low} to {self.high}; there must be at least 2 of them"
            )

    def of(self, request: Request) -> list[int]:
        """``request.prompt_tokens`` token ids."""
        return prompt_tokens(request, self.high - self.low, self.seed, self.low)


@dataclass(frozen=True)
class TextPrompts:
    """Prompts as words, each one token; the server adds ``overhead`` tokens of its own.

    The overhead is the begin-of-text token and, in a chat, the template's. ``words`` is what the
    server was found to take as single tokens (``load_probe``); where it takes none so,
    ``tokens_per_word`` is their mean, and lengths are near what was asked.
    """

    words: Sequence[str] = WORDS
    overhead: int = 0
    seed: int = 0
    tokens_per_word: float = 1.0

    def of(self, request: Request) -> str:
        """Text of ``request.prompt_tokens`` tokens, the server's own included (at least 1 word)."""
        picked = prompt_tokens(request, len(self.words), self.seed)
        count = round((len(picked) - self.overhead) / self.tokens_per_word)
        return " ".join(self.words[number] for number in picked[: max(1, count)])


Prompts = IdPrompts | TextPrompts
