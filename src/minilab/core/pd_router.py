"""PdRouter: whether a request's prompt is computed apart from its decoding, and where each goes.

A split is worth its transfer only for some requests. The rule is Dynamo's: compute the prompt where
it will decode if little of it is left to compute, or if the prefill pool is behind anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from minilab.core.request import RequestState
from minilab.core.router import REJECT, Router, View

PD_MODES = ("always", "never", "length", "queue", "conditional")


@dataclass(frozen=True, slots=True)
class PdRule:
    """When a prompt goes to the prefill pool.

    Attributes:
        mode: ``always``; ``never``; ``length``: if more than ``max_local_prefill_length`` tokens
            are left to compute; ``queue``: if at most ``max_prefill_queue_size`` prompts wait per
            prefill instance; ``conditional``: if both hold.
        max_local_prefill_length: prompt tokens, cached ones not counted.
        max_prefill_queue_size: waiting prompts per prefill instance, on average.

    Raises:
        ValueError: an unknown mode or a negative limit.
    """

    mode: str = "always"
    max_local_prefill_length: int = 512
    max_prefill_queue_size: int = 2

    def __post_init__(self) -> None:
        if self.mode not in PD_MODES:
            raise ValueError(f"pd_mode is {self.mode!r}; known are {', '.join(PD_MODES)}")
        for name in ("max_local_prefill_length", "max_prefill_queue_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or more")

    @property
    def reads_length(self) -> bool:
        """Whether the tokens left to compute matter."""
        return self.mode in ("length", "conditional")

    @property
    def reads_queue(self) -> bool:
        """Whether the prefill pool's queue matters."""
        return self.mode in ("queue", "conditional")

    def remote(self, tokens: int, queue: float) -> bool:
        """Whether to split, with so many tokens to compute and waiting prompts per instance."""
        if self.mode == "never":
            return False
        if self.reads_length and tokens <= self.max_local_prefill_length:
            return False
        return not (self.reads_queue and queue > self.max_prefill_queue_size)


class Route(NamedTuple):
    """Where a request goes: indices into the two pools; ``prefill`` None: all in one place.

    Either may be ``REJECT``: the request is refused.
    """

    prefill: int | None
    decode: int


class PdRouter:
    """Applies a rule; ``prefill`` and ``decode`` choose inside the pools."""

    def __init__(self, rule: PdRule, prefill: Router, decode: Router) -> None:
        self.rule = rule
        self._prefill = prefill
        self._decode = decode
        self._prefill_ended: Any = getattr(prefill, "ended", None)
        self._decode_ended: Any = getattr(decode, "ended", None)

    def choose(
        self,
        request: RequestState,
        prefill_views: Sequence[View],
        decode_views: Sequence[View],
    ) -> Route:
        """Both instances at once, as the request arrives; the rule looks at the chosen decode's
        cache, for what it holds need be neither computed nor sent."""
        decode = self._decode.choose(request, decode_views)
        if decode == REJECT:
            return Route(None, REJECT)
        rule = self.rule
        if rule.mode == "always":
            return Route(self._prefill.choose(request, prefill_views), decode)
        tokens = request.num_prompt_tokens
        if rule.reads_length:
            tokens -= decode_views[decode].match(request)
        queue = 0.0
        if rule.reads_queue:
            queue = sum(view.waiting for view in prefill_views) / len(prefill_views)
        if not rule.remote(tokens, queue):
            return Route(None, decode)
        return Route(self._prefill.choose(request, prefill_views), decode)

    @property
    def counts(self) -> bool:
        """Whether a router of its wants to hear of ends."""
        return self._prefill_ended is not None or self._decode_ended is not None

    def prefill_ended(self, request: RequestState, index: int) -> None:
        """A prompt that was sent to prefill instance ``index`` is done there."""
        if self._prefill_ended is not None:
            self._prefill_ended(request, index)

    def decode_ended(self, request: RequestState, index: int) -> None:
        """A request that was placed on decode instance ``index`` has ended."""
        if self._decode_ended is not None:
            self._decode_ended(request, index)
