"""StartupLog: where one engine start put its memory, and that in sentences.

Every size is as the engine printed it, GiB per rank; what it did not print is None. Nothing is
guessed here: ``explain`` adds up what was found and says what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RankLog:
    """What one worker logged, GiB; None: not in the log."""

    name: str
    gib: dict[str, float] = field(default_factory=dict)
    utilization: float | None = None

    @property
    def activation(self) -> float | None:
        """Activation peak: as logged, or the torch peak less the weights."""
        if "activation" in self.gib:
            return self.gib["activation"]
        if "peak_torch" in self.gib and "weights" in self.gib:
            return max(0.0, self.gib["peak_torch"] - self.gib["weights"])
        return None

    @property
    def computed(self) -> float | None:
        """The budget rule on the logged terms: utilization * total - the rest."""
        parts = [self.gib.get("total"), self.utilization, self.gib.get("weights"), self.activation]
        if any(part is None for part in parts):
            return None
        total, share, weights, active = (float(part) for part in parts if part is not None)
        return total * share - weights - active - self.gib.get("non_torch", 0.0)

    def explain(self) -> list[str]:
        """One sentence: what the memory was spent on; none where too little was logged."""
        gib, parts = self.gib, []
        if "total" in gib and self.utilization is not None:
            parts.append(f"{gib['total']:.2f} GiB x {self.utilization:g}")
        for label, size in (
            ("weights", gib.get("weights")),
            ("outside torch", gib.get("non_torch")),
            ("activation peak", self.activation),
        ):
            if size is not None:
                parts.append(f"- {size:.2f} {label}")
        if not parts:
            return []
        text = f"{self.name}: " + " ".join(parts)
        if "available" in gib:
            text += f" -> {gib['available']:.2f} GiB for KV"
            if self.computed is not None and abs(self.computed - gib["available"]) > 0.03:
                off = self.computed - gib["available"]
                text += f"; {off:.2f} GiB more went elsewhere (CUDA graphs, or another process)"
        elif self.computed is not None:
            text += f" = {self.computed:.2f} GiB for KV"
        if "cuda_graphs" in gib:
            text += f"; CUDA graphs then took {gib['cuda_graphs']:.2f} GiB"
        return [text + "."]


@dataclass(frozen=True)
class StartupLog:
    """One engine start: settings, ranks, and the sizes it printed for all of them together."""

    settings: dict[str, str]
    ranks: tuple[RankLog, ...]
    tokens: int | None
    max_len: int | None
    concurrency: float | None
    estimated_len: int | None
    attention_block: int | None
    refused: bool

    @property
    def available(self) -> float | None:
        """GiB for KV on the worst-placed rank."""
        sizes = [rank.gib["available"] for rank in self.ranks if "available" in rank.gib]
        return min(sizes, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "settings": self.settings,
            "ranks": [
                {"name": r.name, "utilization": r.utilization, **r.gib, "activation": r.activation,
                 "computed_available": r.computed}
                for r in self.ranks
            ],
            "tokens": self.tokens,
            "max_len": self.max_len,
            "max_concurrency": self.concurrency,
            "estimated_max_len": self.estimated_len,
            "attention_block_size": self.attention_block,
            "refused": self.refused,
            "available_gib": self.available,
            "gib_per_1000_tokens": self._per_thousand(),
            "explanation": self.explain(),
        }  # fmt: skip

    def _per_thousand(self) -> float | None:
        if self.available is None or not self.tokens:
            return None
        return 1000 * self.available / self.tokens

    def explain(self) -> list[str]:
        """Sentences: where each GiB went, and what does not add up."""
        said = []
        for rank in self.ranks:
            said += rank.explain()
        sizes = sorted({rank.gib["available"] for rank in self.ranks if "available" in rank.gib})
        if len(sizes) > 1:
            said.append(
                f"The ranks have {sizes[0]:.2f} to {sizes[-1]:.2f} GiB for KV; all take the number "
                f"of blocks that the smallest can hold."
            )
        if self.tokens and self.available:
            per_token = self.available * 2**30 / self.tokens
            said.append(
                f"{self.available:.2f} GiB for {self.tokens:,} tokens: {per_token:,.0f} B a token; "
                "of a model with windows or states that is no cost per token (later versions print "
                "concurrency times max-len there)."
            )
        if self.refused:
            way = f" {self.estimated_len:,} tokens would fit." if self.estimated_len else ""
            said.append(f"The engine refused max-len {self.max_len or 0:,}.{way}")
        return said
