"""Routers that know what each instance has cached, and how they keep it from deciding alone.

A cached prefix saves prefill on the instance that holds it and nowhere else, so every policy here
leans towards it. They differ in what pulls the other way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import exp

from minilab.core.request import RequestState
from minilab.core.router import View, load


class LongestPrefix:
    """The longest cached prefix; between equal ones, the lower load. Nothing else pulls.

    If every prompt begins with one system prompt, every request goes to one instance.
    """

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        return max(range(len(views)), key=lambda k: (views[k].match(request), -load(views[k])))


class CacheAware:
    """SGLang's ``cache_aware`` (sglang-router; defaults of its 2026 releases).

    While loads are balanced, the best match if it covers more than ``threshold`` of the prompt,
    else the lowest load. Loads are out of balance when the highest is more than ``slack`` requests
    above the lowest *and* more than ``ratio`` times as high; then the lowest load, match or not.
    """

    def __init__(self, threshold: float = 0.3, slack: int = 64, ratio: float = 1.5) -> None:
        self.threshold, self.slack, self.ratio = threshold, slack, ratio

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        loads = [load(view) for view in views]
        low, high = min(loads), max(loads)
        if high - low > self.slack and high > self.ratio * low:
            return loads.index(low)
        matches = [view.match(request) for view in views]
        best = max(matches)
        if best > self.threshold * request.num_prompt_tokens:
            return matches.index(best)
        return self.place_new(views)

    def place_new(self, views: Sequence[View]) -> int:
        """Where a prompt goes that nobody has cached."""
        return min(range(len(views)), key=lambda k: load(views[k]))


class SmallestTree(CacheAware):
    """``cache_aware`` as it was at first: a miss goes to the instance with the least cached text.

    A small tree is not a small load: an instance that serves one long prefix keeps the smallest
    tree and gets every new prompt as well.
    """

    def place_new(self, views: Sequence[View]) -> int:
        """See ``CacheAware``."""
        return min(range(len(views)), key=lambda k: views[k].cached_blocks)


class BoundedPrefix:
    """The longest cached prefix among instances within ``slack`` requests of the lowest load.

    Being out of balance narrows the choice here instead of dropping all locality (sglang#32195;
    AIBrix bounds the load in a similar way).
    """

    def __init__(self, slack: int = 4) -> None:
        self.slack = slack

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        loads = [load(view) for view in views]
        bound = min(loads) + self.slack
        near = [index for index, count in enumerate(loads) if count <= bound]
        return max(near, key=lambda index: (views[index].match(request), -loads[index]))


class OverlapCost:
    """Dynamo's KV router: ``weight * prefill blocks + decode blocks``, the lowest cost wins.

    Prefill blocks are those still to be computed there, this prompt's included and its cached ones
    not; decode blocks are those in use, this request's included. ``temperature`` above 0 draws an
    instance with weight exp(-cost / temperature), costs scaled to 0..1.
    """

    def __init__(self, weight: float = 1.0, temperature: float = 0.0, seed: int = 0) -> None:
        self.weight, self.temperature = weight, temperature
        self._random = random.Random(seed)

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        now, own = request.queued_at, request.num_prompt_tokens
        # In tokens: a block is as long for both terms, so its length divides out.
        costs = [
            self.weight * (view.pending_tokens + own - view.match(request))
            + view.tokens_at(now)
            + own
            for view in views
        ]
        low, high = min(costs), max(costs)
        if not self.temperature or low == high:
            return costs.index(low)
        scale = self.temperature * (high - low)
        return self._random.choices(range(len(views)), [exp((low - c) / scale) for c in costs])[0]


class LoadAwareScore:
    """Share of the prompt that is cached, minus ``beta`` times the relative load.

    The score of the load-aware extension written for vLLM's production-stack router: (matched /
    prompt) - beta * (load - mean load) / max(1, mean load).
    """

    def __init__(self, beta: float = 0.5) -> None:
        self.beta = beta

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        loads = [load(view) for view in views]
        mean = sum(loads) / len(loads)
        unit = self.beta / max(1.0, mean)
        scores = [
            view.match(request) / request.num_prompt_tokens - unit * (count - mean)
            for view, count in zip(views, loads, strict=True)
        ]
        return scores.index(max(scores))


class PrefixLoad:
    """Ours: cached text decides while loads are close, an idle prefill decides the rest.

    Among the instances within ``slack`` requests of the lowest load, the best match, if it covers
    more than ``threshold`` of the prompt; of equal matches always the first, so that shared text
    and the prompts that extend it gather in one place. Else an instance with no prefill under way
    or queued, and of those the lowest load: two prompts that meet in one step stretch that step
    for every stream there.
    """

    def __init__(self, threshold: float = 0.15, slack: int = 24) -> None:
        self.threshold, self.slack = threshold, slack

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        loads = [load(view) for view in views]
        bound = min(loads) + self.slack
        matches = [
            view.match(request) if count <= bound else 0
            for view, count in zip(views, loads, strict=True)
        ]
        best = max(matches)
        if best > self.threshold * request.num_prompt_tokens:
            return matches.index(best)
        return min(range(len(views)), key=lambda k: (views[k].pending_tokens > 0, loads[k]))
