"""Proposers, prompts and a tiny model for the tests of speculative decoding."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.engine.spec.proposer import Drafting, Proposer, TextProposer
from minilab.engine.spec.speculation import Speculation
from minilab.engine.tiny import TINY, random_weights

WEIGHTS = random_weights(TINY, 5)
VOCAB = 256  # bytes; the marks above end a text


class Oracle(TextProposer):
    """Knows the text that will come, and spoils some of it: every length of acceptance happens.

    ``texts`` maps a prompt to its plain continuation.
    """

    def __init__(self, texts: Mapping[tuple[int, ...], Sequence[int]], wrong: float, seed: int):
        self._texts = {prompt: [*prompt, *text] for prompt, text in texts.items()}
        self._wrong = wrong
        self._random = random.Random(seed)

    def continuation(self, asked: Drafting) -> list[int]:
        known = next(
            text
            for prompt, text in self._texts.items()
            if tuple(asked.tokens[: len(prompt)]) == prompt
        )
        start = len(asked.tokens)
        count = self._random.randint(0, asked.most)
        guesses = (list(known) + [1] * asked.most)[start : start + count]
        return [(t + 1) % VOCAB if self._random.random() < self._wrong else t for t in guesses]


def prompts(count: int, seed: int, shared: int = 0) -> list[list[int]]:
    """Prompts of distinct tokens in which a stretch comes twice: look-up finds something."""
    rng = random.Random(seed)
    head = rng.sample(range(VOCAB), shared)
    found = []
    for _ in range(count):
        body = rng.sample(range(VOCAB), rng.randint(8, 24))
        found.append(head + body + body[: rng.randint(2, 6)])
    return found


def engine(
    limits: SchedulerConfig, proposer: Proposer | None = None, k: int = 4, seed: int = 0
) -> LLM:
    """The tiny model with or without a proposer."""
    speculation = None if proposer is None else Speculation.of(proposer, k)
    return LLM(TINY, WEIGHTS, limits, seed, speculation=speculation)


def greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


def plain(asked: Sequence[list[int]], tokens: int) -> list[list[int]]:
    """What the model says without speculation, each prompt alone in a roomy pool."""
    llm = engine(SchedulerConfig(4096, 16, max_num_seqs=64))
    return [output.token_ids for output in llm.generate(asked, greedy(tokens))]
