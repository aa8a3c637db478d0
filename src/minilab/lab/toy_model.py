"""TinyModel: one layer of attention with random weights, whose text shows any wrong cache slot.

Not a language model: it says nonsense, but always the same nonsense for the same text before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SENSITIVE = 32.0


class TinyModel:
    """One layer of causal attention over ``vocab`` tokens, greedy; float64 weights from ``seed``.

    The next token depends on every earlier one through its key and value, and a sine behind the
    attention makes it sensitive: one wrong slot in the cache gives other text.
    """

    def __init__(self, vocab: int = 97, width: int = 24, longest: int = 512, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.width = width
        self.embed = rng.normal(size=(vocab, width))
        self.place = rng.normal(size=(longest, width))
        self.wq, self.wk, self.wv = rng.normal(size=(3, width, width)) / np.sqrt(width)
        self.head = rng.normal(size=(width, vocab))

    def project(self, tokens: Sequence[int], start: int) -> tuple[Array, Array, Array]:
        """Query, key and value [n, width] of tokens at positions ``start``, ``start + 1``, ..."""
        x = self.embed[list(tokens)] + self.place[start : start + len(tokens)]
        return x @ self.wq, x @ self.wk, x @ self.wv

    def next_token(self, query: Array, keys: Array, values: Array) -> int:
        """The token after the one whose query [width] this is; keys and values [n, width]."""
        score = keys @ query / self.width
        weight = np.exp(score - score.max())
        mixed = weight @ values / weight.sum()
        return int((np.sin(SENSITIVE * mixed) @ self.head).argmax())


def generate(model: TinyModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The same text without a cache, a batch or a page: all is computed again for each token."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        query, keys, values = model.project(tokens, 0)
        tokens.append(model.next_token(query[-1], keys, values))
    return tokens[len(prompt) :]
