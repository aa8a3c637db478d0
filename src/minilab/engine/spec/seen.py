"""SeenFeatures: what a target computed of each text and a drafter has not read yet.

After each step the target's true features replace what a drafter had guessed of them. Which of them
stay is known only when the drafts have been judged.
"""

from __future__ import annotations

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.spec.proposer import Drafting


class SeenFeatures:
    """Features by request: position of the first, and rows, for each step since the last ``take``.

    Tokens from the prefix cache have none: the target did not compute them, so nobody saw them.
    """

    def __init__(self) -> None:
        self._parts: dict[int, list[tuple[int, torch.Tensor]]] = {}

    def __contains__(self, request_id: int) -> bool:
        return bool(self._parts.get(request_id))

    def observe(self, batch: StepBatch, hidden: torch.Tensor) -> None:
        """See ``Proposer.observe``."""
        lengths = batch.seq_lens.tolist()
        parts = torch.split(hidden, batch.query_lens)
        for request, count, length, rows in zip(
            batch.requests, batch.query_lens, lengths, parts, strict=True
        ):
            start = length - count
            # What was seen from there on was rejected, or is computed again.
            old = self._parts.get(request.id, [])
            before = [(at, part[: start - at]) for at, part in old if at < start]
            self._parts[request.id] = [*before, (start, rows)]

    def take(self, one: Drafting) -> tuple[list[int], list[torch.Tensor]]:
        """Positions of the tokens that stayed, ascending, and their features in parts.

        The newest token has no feature yet; rows behind it were rejected drafts.
        """
        positions: list[int] = []
        rows: list[torch.Tensor] = []
        for start, part in self._parts.pop(one.id):
            stay = min(start + len(part), len(one.tokens) - 1) - start
            rows.append(part[:stay])
            positions += range(start, start + stay)
        return positions, rows

    def forget(self, request_id: int) -> None:
        """A request has ended."""
        self._parts.pop(request_id, None)
