"""Token numbers for a workload's content segments, where a real engine needs real tokens.

A segment (content id, length) is a prefix of an endless text of that id, so equal segments give
equal tokens and a prefix cache sees the sharing that the workload describes. The texts mean
nothing: lengths and sharing are what a load test is about (a draft model would notice).
"""

from __future__ import annotations

import numpy as np

from minilab.facts.request import Request

OWN = 1 << 62
"""Content ids from here on are of requests whose text nobody else sends."""


def prompt_tokens(request: Request, count: int, seed: int = 0, low: int = 0) -> list[int]:
    """Numbers from ``low`` to ``low + count - 1``, as many as the prompt has tokens."""
    segments = request.prompt or ((OWN + request.id, request.prompt_tokens),)
    tokens: list[int] = []
    for content, length in segments:
        # One value after the other from one stream: a longer segment begins like a shorter one.
        drawn = np.random.default_rng([seed, content]).random(length)
        tokens += (low + (drawn * count).astype(np.int64)).tolist()
    return tokens
