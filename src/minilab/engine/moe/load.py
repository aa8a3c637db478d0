"""ExpertLoad and RouteLog: who gets how much to do, as the engine really routes it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minilab.engine.moe.layer import MoELayer


class ExpertLoad:
    """Counts (token, expert) pairs while an engine runs; costs one bincount per layer and step.

    Attributes:
        layers: numbers of the layers that are watched.
        counts: int64 [len(layers), num_experts].
    """

    def __init__(self, mixtures: Sequence[MoELayer]) -> None:
        self.layers = [mixture.number for mixture in mixtures]
        experts = mixtures[0].routing.num_experts
        self.counts = torch.zeros((len(mixtures), experts), dtype=torch.int64)
        self._row = {number: row for row, number in enumerate(self.layers)}
        for mixture in mixtures:
            mixture.on_route = self._count

    @property
    def max_over_mean(self) -> torch.Tensor:
        """float32 [len(layers)]: 1 is perfect balance; a step waits for the largest."""
        return self.counts.amax(1) / self.counts.float().mean(1).clamp(min=1e-9)

    def take(self) -> torch.Tensor:
        """The counts so far; counting begins anew."""
        counts, self.counts = self.counts, torch.zeros_like(self.counts)
        return counts

    def _count(self, layer: int, ids: torch.Tensor) -> None:
        found = ids.flatten().bincount(minlength=self.counts.shape[1])
        self.counts[self._row[layer]] += found.cpu()


class RouteLog:
    """Keeps every choice, in order: for traces; ``ExpertLoad`` is what a server would keep."""

    def __init__(self, mixtures: Sequence[MoELayer]) -> None:
        self._parts: dict[int, list[torch.Tensor]] = {m.number: [] for m in mixtures}
        for mixture in mixtures:
            mixture.on_route = self._keep

    def routes(self) -> dict[int, torch.Tensor]:
        """int32 [tokens, top_k] by layer. An MTP module sees other tokens than the layers do."""
        return {layer: torch.cat(parts) for layer, parts in self._parts.items()}

    def _keep(self, layer: int, ids: torch.Tensor) -> None:
        self._parts[layer].append(ids.cpu().clone())
