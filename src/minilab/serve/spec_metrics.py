"""SpecMetrics: the counters of speculative decoding under vLLM's names.

As in vLLM they are exported only by a server that speculates; a page without them says "off".
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter

from minilab.engine.spec.metrics import DraftCounts


class SpecMetrics:
    """Follows the engine's own counts.

    Args:
        labels: of every sample.
        most: guesses a request may get in a step: so many positions are exported.
    """

    def __init__(self, registry: CollectorRegistry, labels: Mapping[str, str], most: int) -> None:
        def family(name: str, told: str, *more: str) -> Counter:
            return Counter(f"vllm:spec_decode_{name}", told, [*labels, *more], registry=registry)

        def counter(name: str, told: str) -> Counter:
            return family(name, told).labels(**labels)

        self._drafts = counter("num_drafts", "Decode steps of a request that had a draft.")
        self._draft_tokens = counter("num_draft_tokens", "Draft tokens verified.")
        self._accepted = counter("num_accepted_tokens", "Draft tokens kept.")
        by_place = family("num_accepted_tokens_per_pos", "Kept at this place.", "position")
        self._per_pos = [by_place.labels(**labels, position=str(place)) for place in range(most)]
        self._told = DraftCounts()

    def follow(self, counts: DraftCounts) -> None:
        """Export what has been counted since the last call."""
        told = self._told
        self._drafts.inc(counts.num_drafts - told.num_drafts)
        self._draft_tokens.inc(counts.num_draft_tokens - told.num_draft_tokens)
        self._accepted.inc(counts.num_accepted_tokens - told.num_accepted_tokens)
        before = [*told.accepted_per_pos, *[0] * len(counts.accepted_per_pos)]
        for counter, now, then in zip(self._per_pos, counts.accepted_per_pos, before, strict=False):
            counter.inc(now - then)
        self._told = counts.copy()
