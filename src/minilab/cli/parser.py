"""Parser: argparse that reports in one line, and the kinds of numbers that options take.

A wrong option is an InputError like any other wrong input, so that ``main`` has one place that
prints it; what argparse prints itself (the usage, over many lines) hides the message.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from minilab.facts.errors import InputError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are InputErrors. Options must be written in full."""

    def __init__(self, **more: Any) -> None:
        super().__init__(allow_abbrev=False, **more)
        self.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show the traceback of an error",
        )

    def error(self, message: str) -> NoReturn:
        """Raise an InputError that says where to read on."""
        raise InputError(f"{message}; see `{self.prog} --help`")

    def parse_all(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse; for an option nobody knows, name the closest ones of the command at hand."""
        args, extra = self.parse_known_args(words)
        if extra:
            chosen = list(self._chosen(words))[-1]
            known = [option for option in chosen._option_string_actions if option[:2] == "--"]
            close = difflib.get_close_matches(extra[0].partition("=")[0], known, n=3, cutoff=0.6)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            chosen.error(f"unrecognized arguments: {' '.join(extra)}{hint}")
        return args

    def _chosen(self, words: Sequence[str]) -> Iterator[Parser]:
        """This parser and the parsers of the commands that ``words`` name, outermost first."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for at, word in enumerate(words):
                    if word in action.choices:
                        yield from action.choices[word]._chosen(words[at + 1 :])
                        return


def whole_number(least: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number of at least ``least``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}; give a whole number of at least {least}")
        return value

    return parse


def number(text: str) -> float:
    """The type of an option that takes a finite number of at least 0."""
    value = _float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; give a finite number of at least 0")
    return value


def positive(text: str) -> float:
    """The type of an option that takes a finite number above 0."""
    value = _float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; give a finite number above 0")
    return value


def whole_numbers(least: int) -> Callable[[str], list[int]]:
    """The type of an option that takes whole numbers with commas between them."""
    one = whole_number(least)

    def parse(text: str) -> list[int]:
        return [one(part.strip()) for part in text.split(",")]

    return parse


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
