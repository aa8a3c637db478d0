"""spec_texts: what SmolLM2-135M answered to prompts of five kinds, and a walk over it.

With greedy verification a text is the same whatever is guessed. So a recorded text serves to count,
exactly and without a model, how many steps any way of guessing would have taken. The file also
keeps the step times that were measured with it, for a machine without the model. Loops at the end
of a text are cut: any look-up foretells them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("copy", "code", "summarise", "qa", "story")
Propose = Callable[[Sequence[int], int], Sequence[int]]
"""(tokens so far, most guesses) -> guesses."""


@dataclass(frozen=True)
class Recorded:
    """Token ids of a prompt and of the answer behind it."""

    kind: str
    tokens: tuple[int, ...]
    num_prompt_tokens: int


class Step(NamedTuple):
    """A decode step: guesses that were verified, and those of them that were kept."""

    guessed: int
    kept: int

    @property
    def width(self) -> int:
        """Positions that the target computes."""
        return 1 + self.guessed


@cache
def _file() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(Path(__file__).with_name("spec_texts.json").read_text())
    return found


def recorded(kind: str | None = None) -> list[Recorded]:
    """All texts, or those of one kind."""
    return [
        Recorded(one["kind"], tuple(one["tokens"]), one["num_prompt_tokens"])
        for one in _file()["texts"]
        if kind in (None, one["kind"])
    ]


def recorded_seconds(batch: int) -> dict[int, float]:
    """Step time (s) by width, as measured where the texts were made; ``origin`` says where."""
    return {int(width): s for width, s in _file()["step_seconds"][str(batch)].items()}


def origin() -> str:
    """Model, machine and date of the recording."""
    return str(_file()["origin"])


def walk(propose: Propose, text: Recorded, k: int) -> list[Step]:
    """The steps in which ``text`` would have been decoded, with up to ``k`` guesses in each.

    The first token of the answer belongs to the prompt's own step and is not counted.
    """
    steps = []
    tokens, known = text.tokens, text.num_prompt_tokens + 1
    while known < len(tokens):
        most = min(k, len(tokens) - known - 1)
        guesses = list(propose(list(tokens[:known]), most))[:most] if most else []
        kept = 0
        while kept < len(guesses) and guesses[kept] == tokens[known + kept]:
            kept += 1
        steps.append(Step(len(guesses), kept))
        known += kept + 1
    return steps


@dataclass(frozen=True)
class Tally:
    """Counts of the steps of one kind of text.

    Attributes:
        tokens: put out by these steps.
        acceptance_length: tokens per step *that had a guess*: what vLLM logs.
        tokens_per_step: over all steps.
        expanded_batch: positions verified per token put out.
        per_position: share of the steps with a guess in which the guess there was kept.
    """

    steps: tuple[Step, ...]

    @property
    def tokens(self) -> int:
        return sum(1 + step.kept for step in self.steps)

    @property
    def acceptance_length(self) -> float:
        guessed = [step for step in self.steps if step.guessed]
        return 1 + sum(step.kept for step in guessed) / len(guessed) if guessed else 1.0

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / len(self.steps)

    @property
    def expanded_batch(self) -> float:
        return sum(step.width for step in self.steps) / self.tokens

    @property
    def per_position(self) -> list[float]:
        guessed = [step for step in self.steps if step.guessed]
        longest = max((step.guessed for step in guessed), default=0)
        return [sum(step.kept > i for step in guessed) / len(guessed) for i in range(longest)]

    def gaps(self, seconds: Mapping[int, float]) -> list[float]:
        """Time (s) before each token: a step's own, and none for those that come with it."""
        return [gap for step in self.steps for gap in (seconds[step.width], *[0.0] * step.kept)]


def tally(propose: Propose, kind: str, k: int) -> Tally:
    """The steps of all recorded texts of ``kind``."""
    return Tally(tuple(step for text in recorded(kind) for step in walk(propose, text, k)))
