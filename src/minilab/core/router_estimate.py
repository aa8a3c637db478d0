"""Mooncake's router: estimate the time to the first token on each instance, and refuse in time."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from minilab.core.request import RequestState
from minilab.core.router import REJECT, View


class TransferQueuePrefill:
    """The lowest transfer + queue + prefill time; rejection when even that is too long.

    After Mooncake's KVCache-centric scheduling (Qin et al., FAST'25, section 6), which also
    considers to copy the best cached prefix from the instance that has it. ``seconds_per_token`` is
    the time of prefill, ``transfer_seconds_per_token`` that of moving KV between instances (inf:
    they cannot), ``limit`` the longest time to a first token that is worth starting (s).
    """

    def __init__(
        self,
        seconds_per_token: float = 2e-5,
        transfer_seconds_per_token: float = inf,
        limit: float = inf,
    ) -> None:
        self.prefill, self.transfer, self.limit = (
            seconds_per_token,
            transfer_seconds_per_token,
            limit,
        )

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        matches = [view.match(request) for view in views]
        best = max(matches)
        times = [
            self._first_token(view, request.num_prompt_tokens, match, best)
            for view, match in zip(views, matches, strict=True)
        ]
        index = times.index(min(times))
        return index if times[index] <= self.limit else REJECT

    def _first_token(self, view: View, prompt: int, match: int, best: int) -> float:
        """Seconds until the first token, by computing what is missing or by fetching it first."""
        queue = view.pending_tokens * self.prefill
        local = (prompt - match) * self.prefill
        if best == match:
            return queue + local
        fetched = (best - match) * self.transfer + (prompt - best) * self.prefill
        return queue + min(local, fetched)
