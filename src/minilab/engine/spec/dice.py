"""DraftDice: how a model that guesses draws its guesses, and remembers their odds."""

from __future__ import annotations

import torch

from minilab.engine.sampling import probabilities
from minilab.engine.spec.proposer import Drafting


class DraftDice:
    """One generator per request; ``seed`` for the requests that bring none."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._generators: dict[int, torch.Generator] = {}

    def draw(self, one: Drafting, logits: torch.Tensor, odds: list[torch.Tensor]) -> int:
        """A guess from logits float32 [vocab_size]; above temperature 0 its odds join ``odds``."""
        if one.params.temperature == 0:
            return int(logits.argmax())
        chances = probabilities(logits, one.params)
        odds.append(chances)
        generator = self._generator(one, logits.device)
        return int(torch.multinomial(chances, 1, generator=generator))

    def forget(self, request_id: int) -> None:
        """A request has ended."""
        self._generators.pop(request_id, None)

    def _generator(self, one: Drafting, device: torch.device) -> torch.Generator:
        """Other draws than the target's: a draft must not foretell the coin that judges it."""
        found = self._generators.get(one.id)
        if found is None:
            seed = (self._seed * 1_000_003 + one.id) * 7919 + (one.params.seed or 0) + 1
            found = self._generators[one.id] = torch.Generator(device).manual_seed(seed)
        return found
