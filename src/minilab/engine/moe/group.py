"""Group: processes that run one model together, and what they send each other, counted.

It speaks gloo, which goes through the host's memory and needs no GPU. NCCL, the way between GPUs,
has the same calls here, but nobody has run it on two cards yet: it is untested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from minilab.facts.errors import InputError

BACKENDS = ("gloo", "nccl")


class GroupError(RuntimeError):
    """Another process of the group is gone, or too slow."""


class Group:
    """This process's place among others.

    Attributes:
        sent_bytes: what left this process for others, by kind ("dispatch", "combine", ...).
        sent_rows: how many rows of tensors that were.
    """

    def __init__(self, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.sent_bytes: Counter[str] = Counter()
        self.sent_rows: Counter[str] = Counter()

    @classmethod
    def join(
        cls, rank: int, size: int, store: Path, timeout: float = 30.0, backend: str = "gloo"
    ) -> Group:
        """Meet ``size`` processes at a file. Listens where GLOO_SOCKET_IFNAME says ("lo").

        Args:
            store: a path that does not exist yet, the same for all.
            timeout: seconds that any step of the group may take.

        Raises:
            GroupError: not all came in time.
            InputError: no such rank or backend.
        """
        if not 0 <= rank < size:
            raise InputError(f"rank {rank} of {size}; it must be within 0 and {size - 1}")
        if backend not in BACKENDS:
            raise InputError(f"backend {backend!r}; give one of {', '.join(BACKENDS)}")
        group = cls(rank, size, timeout)
        try:
            files = dist.FileStore(str(store), size)  # type: ignore[attr-defined]
            files.set_timeout(timedelta(seconds=timeout))
            dist.init_process_group(
                backend,
                store=files,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
        except (RuntimeError, dist.DistError) as error:
            raise group.failure("meeting", error) from None
        return group

    def leave(self) -> None:
        """Say good-bye."""
        dist.destroy_process_group()

    def all_reduce(self, x: torch.Tensor, kind: str = "all_reduce") -> torch.Tensor:
        """The sum over all processes. A ring sends 2 (size - 1) / size of it from each."""
        out = x.contiguous()
        if self.size > 1:
            try:
                dist.all_reduce(out)
            except RuntimeError as error:
                raise self.failure(kind, error) from None
            self._count(kind, out, 2 * (self.size - 1) / self.size)
        return out

    def any(self, yes: bool) -> bool:
        """Whether any process says yes."""
        votes = self.all_reduce(torch.tensor([int(yes)]), "votes")
        return bool(votes[0] > 0)

    def exchange(
        self, rows: torch.Tensor, counts: Sequence[int], kind: str
    ) -> tuple[torch.Tensor, list[int]]:
        """Send ``counts[r]`` rows to each rank r, in order; returns what came, and from whom.

        Rows to oneself do not travel and are not counted. Everyone must call it, also with none.
        """
        sizes = torch.tensor(counts, dtype=torch.int64)
        theirs = torch.empty_like(sizes)
        self._all_to_all(theirs, sizes, None, None, kind)
        return self.send_back(rows, counts, theirs.tolist(), kind), theirs.tolist()

    def send_back(
        self, rows: torch.Tensor, counts: Sequence[int], coming: Sequence[int], kind: str
    ) -> torch.Tensor:
        """As ``exchange`` where it is known already how many rows come from each rank."""
        out = rows.new_empty((sum(coming), *rows.shape[1:]))
        self._all_to_all(out, rows.contiguous(), list(coming), list(counts), kind)
        away = sum(counts) - counts[self.rank]
        self.sent_rows[kind] += away
        self.sent_bytes[kind] += away * rows[:1].numel() * rows.element_size() if away else 0
        return out

    def failure(self, what: str, error: Exception) -> GroupError:
        """What to raise when a step of the group broke."""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return GroupError(
            f"rank {self.rank} of {self.size}: {what} failed: another process is gone, or took "
            f"longer than {self.timeout:g} s ({reason[:160]})"
        )

    def _all_to_all(
        self,
        out: torch.Tensor,
        rows: torch.Tensor,
        coming: list[int] | None,
        counts: list[int] | None,
        kind: str,
    ) -> None:
        if self.size == 1:
            out.copy_(rows)
            return
        try:
            dist.all_to_all_single(out, rows, coming, counts)
        except RuntimeError as error:
            raise self.failure(kind, error) from None

    def _count(self, kind: str, x: torch.Tensor, share: float) -> None:
        self.sent_rows[kind] += len(x)
        self.sent_bytes[kind] += round(x.numel() * x.element_size() * share)
