"""The training texts as batches: what ``generate.py`` wrote, read back."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file


@dataclass(frozen=True)
class Text:
    """One text of the target; ``hidden``: bf16 [len(tokens), hidden_size], before the last norm."""

    tokens: torch.Tensor
    num_prompt_tokens: int
    hidden: torch.Tensor


def read(folder: Path) -> list[Text]:
    """All finished shards."""
    texts = []
    for path in sorted(folder.glob("shard-*.safetensors")):
        found = load_file(path)
        start = 0
        for end, prompt in zip(found["ends"].tolist(), found["prompts"].tolist(), strict=True):
            if end - prompt >= 8:
                tokens = found["tokens"][start:end].long()
                texts.append(Text(tokens, prompt, found["hidden"][start:end]))
            start = end
    if not texts:
        sys.exit(f"{folder}: no finished shards; write some with drafter/generate.py first")
    return texts


def batches(texts: list[Text], size: int, steps: int, seed: int) -> Iterator[list[Text]]:
    """``steps`` batches of ``size`` texts, pass after pass, each in an order of its own."""
    rng = random.Random(seed)
    order: list[int] = []
    for _ in range(steps):
        while len(order) < size:
            order += rng.sample(range(len(texts)), len(texts))
        yield [texts[order.pop(0)] for _ in range(size)]


def draft_vocabulary(texts: list[Text], size: int, always: tuple[int, ...]) -> torch.Tensor:
    """int64[size], the tokens a drafter may guess: the most frequent, responses counting most."""
    counts: Counter[int] = Counter()
    for text in texts:
        tokens = text.tokens.tolist()
        for token in tokens[: text.num_prompt_tokens]:
            counts[token] += 1
        for token in tokens[text.num_prompt_tokens :]:
            counts[token] += 5
    for token in always:
        counts[token] += 10**9
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    chosen = [token for token, _ in ranked[:size]]
    spare = (token for token in range(10**6) if token not in counts)
    while len(chosen) < size:
        chosen.append(next(spare))
    return torch.tensor(sorted(chosen))
