"""Wire: the blocks of one request after the other, over a torch.distributed group of two."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from minilab.engine.pd.packing import Packing

REFUSED = -1
"""In place of a number of blocks: the sender no longer has them."""


@dataclass
class Moved:
    """What one end has sent, or received, so far: counts, bytes, and seconds on the wire."""

    transfers: int = 0
    blocks: int = 0
    pieces: int = 0
    nbytes: int = 0
    seconds: float = 0.0

    def add(self, blocks: int, parts: Sequence[torch.Tensor], seconds: float) -> None:
        """One more transfer."""
        self.transfers += 1
        self.blocks += blocks
        self.pieces += len(parts)
        self.nbytes += sum(part.numel() * part.element_size() for part in parts)
        self.seconds += seconds

    def to_json(self) -> dict[str, Any]:
        """As a message carries it."""
        return asdict(self)


class Wire:
    """One end. Both ends name the same requests in the same order; each call waits for its turn.

    A request is a header (its id, how many blocks follow) and its parts. All parts are under way at
    once: that is the most that pieces can ask for.

    Args:
        packing: how blocks become tensors; the same at both ends.
        peer: rank of the other end.
        timeout: seconds for a request; then, or when the peer is gone, the wire is broken for good.
        place: device of the tensors that the group sends.
    """

    def __init__(
        self, packing: Packing, peer: int, timeout: float, place: torch.device | None = None
    ) -> None:
        self.moved = Moved()
        self._packing = packing
        self._peer = peer
        self._limit = timedelta(seconds=timeout)
        self._place = place or torch.device("cpu")

    def send(self, request_id: int, block_ids: Sequence[int]) -> bool:
        """Send these blocks; True.

        Raises:
            RuntimeError: the wire is broken.
        """
        begin = time.perf_counter()
        parts = self._packing.pack(block_ids)
        self._send([self._header(request_id, len(block_ids)), *parts])
        self.moved.add(len(block_ids), parts, time.perf_counter() - begin)
        return True

    def refuse(self, request_id: int) -> bool:
        """Say that there is nothing to send; False.

        Raises:
            RuntimeError: the wire is broken.
        """
        self._send([self._header(request_id, REFUSED)])
        return False

    def recv(self, request_id: int, block_ids: Sequence[int]) -> bool:
        """Receive into these blocks; False: the other end no longer has them.

        Raises:
            RuntimeError: the wire is broken, or the ends do not agree on what comes next.
        """
        header = self._header(0, 0)
        self._recv([header])
        begin = time.perf_counter()  # the wait for the other end's turn is not the wire's time
        found, count = header.tolist()
        if found != request_id or count not in (REFUSED, len(block_ids)):
            raise RuntimeError(
                f"request {found} with {count} blocks came, but {request_id} with "
                f"{len(block_ids)} was asked"
            )
        if count == REFUSED:
            return False
        parts = self._packing.space(block_ids)
        self._recv(parts)
        self._packing.unpack(parts, block_ids)
        self.moved.add(len(block_ids), parts, time.perf_counter() - begin)
        return True

    def _header(self, request_id: int, blocks: int) -> torch.Tensor:
        return torch.tensor([request_id, blocks], dtype=torch.int64, device=self._place)

    def _send(self, parts: Sequence[torch.Tensor]) -> None:
        self._finish([dist.isend(part, self._peer) for part in parts])

    def _recv(self, parts: Sequence[torch.Tensor]) -> None:
        self._finish([dist.irecv(part, self._peer) for part in parts])

    def _finish(self, works: Sequence[Any]) -> None:
        for work in works:
            work.wait(self._limit)
        if self._place.type == "cuda":  # there, wait() only orders streams
            torch.cuda.synchronize(self._place)
