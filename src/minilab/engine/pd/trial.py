"""Trial: the same requests to one plain engine and to the split, token for token.

The plain engine has a large pool, whole prompts and no prefix cache; the two engines of the split
have small pools, chunks and a prefix cache, so that every request meets what could go wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm
from minilab.engine.pd.output import SplitOutput
from minilab.engine.pd.settings import PdSettings
from minilab.engine.pd.split import SplitEngine
from minilab.engine.sampling import SamplingParams

BLOCK = 4
PROMPT, HEAD, OUTPUT = 64, 16, 24
"""Most tokens of a prompt; of its part that others begin with as well; of an answer."""
TIGHT = SchedulerConfig(40, BLOCK, max_num_batched_tokens=24, max_num_seqs=8)
HEADS = 5


@dataclass(frozen=True)
class Asked:
    """One request."""

    prompt: list[int]
    params: SamplingParams


def requests(count: int, vocab_size: int, seed: int = 0) -> list[Asked]:
    """Prompts of 5 to 64 tokens, most of which begin like others; greedy and drawn answers.

    One answer in ten has a single token, and any may end at one of three tokens.
    """
    dice = random.Random(seed)

    def text(length: int) -> list[int]:
        return [dice.randrange(vocab_size) for _ in range(length)]

    heads = [text(HEAD) for _ in range(HEADS)]
    found: list[Asked] = []
    for number in range(count):
        head = dice.choice(heads) if dice.random() < 0.8 else []
        prompt = head + text(dice.randint(5, PROMPT - len(head)))
        params = SamplingParams(
            temperature=0.0 if number % 2 else 0.8,
            max_tokens=1 if number % 10 == 0 else dice.randint(2, OUTPUT),
            seed=number if number % 3 else None,
            stop_token_ids=tuple(text(3)),
        )
        found.append(Asked(prompt, params))
    return found


def plain_answers(asked: Sequence[Asked], settings: PdSettings) -> list[list[int]]:
    """What one engine says: no chunks, no cache, no preemption."""
    blocks = len(asked) * -(-(PROMPT + OUTPUT) // BLOCK)
    limits = SchedulerConfig(
        blocks,
        BLOCK,
        max_num_batched_tokens=PROMPT * len(asked),
        max_num_seqs=len(asked),
        enable_prefix_caching=False,
    )
    llm = load_llm(settings.model, limits, settings.dtype, settings.device, settings.seed)
    outputs = llm.generate([one.prompt for one in asked], [one.params for one in asked])
    return [output.token_ids for output in outputs]


def split_answers(asked: Sequence[Asked], split: SplitEngine) -> list[SplitOutput]:
    """What the split says."""
    return split.generate([one.prompt for one in asked], [one.params for one in asked])
