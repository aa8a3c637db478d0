"""ExpertParallel: each process keeps some of the experts, and tokens travel to them and back.

Dispatch sends a token's vector to the experts that its router chose; combine brings their weighted
sums home. Between processes that is two all-to-alls per layer. What is sent depends on how:
``per_rank`` sends a token once to each process that has any of its experts (DeepEP's normal
kernels), ``per_pair`` once for each of its experts (its low-latency kernels, which need no sorting
at the other end).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from minilab.engine.moe.group import Group
from minilab.engine.moe.layer import LocalExperts


@dataclass(frozen=True)
class Rows:
    """What a process sends, sorted by destination.

    Attributes:
        token: int64 [n], whose vector each row is.
        keep: bool [n, top_k], which of the token's experts the row is for.
        counts: rows for each rank.
    """

    token: torch.Tensor
    keep: torch.Tensor
    counts: list[int]


Sending = Callable[[torch.Tensor, int], Rows]
"""(ranks of the chosen experts int64 [num_tokens, top_k], group size) -> rows to send."""


def per_rank(ranks: torch.Tensor, size: int) -> Rows:
    """One row per token and rank that has any of its experts."""
    wanted = torch.zeros((size, len(ranks)), dtype=torch.bool, device=ranks.device)
    token = torch.arange(len(ranks), device=ranks.device)[:, None].expand_as(ranks)
    wanted[ranks.flatten(), token.flatten()] = True
    rank, token = wanted.nonzero(as_tuple=True)
    return Rows(token, ranks[token] == rank[:, None], wanted.sum(1).tolist())


def per_pair(ranks: torch.Tensor, size: int) -> Rows:
    """One row per token and expert."""
    order = ranks.flatten().argsort(stable=True)
    top_k = ranks.shape[1]
    keep = torch.nn.functional.one_hot(order % top_k, top_k).bool()
    return Rows(order // top_k, keep, ranks.flatten().bincount(minlength=size).tolist())


@dataclass(frozen=True)
class Placement:
    """Which process has an expert, and where it lies there.

    Attributes:
        rank, slot: int64 [num_experts].
    """

    rank: torch.Tensor
    slot: torch.Tensor

    @classmethod
    def contiguous(cls, num_experts: int, size: int) -> Placement:
        """The first experts to rank 0 and so on; if they do not divide, some have one more."""
        return cls.of(torch.arange(num_experts) * size // num_experts)

    @classmethod
    def of(cls, rank: torch.Tensor) -> Placement:
        """Experts of a rank lie there in the order of their numbers."""
        slot = torch.empty_like(rank)
        for one in set(rank.tolist()):
            mine = rank == one
            slot[mine] = torch.arange(int(mine.sum()))
        return cls(rank, slot)

    def share(self, experts: LocalExperts, rank: int) -> LocalExperts:
        """The experts of one rank, out of all."""
        mine = self.rank == rank
        return LocalExperts(experts.w1[mine].contiguous(), experts.w2[mine].contiguous())


class ExpertParallel:
    """``moe.layer.Experts`` over a group. Every process must call it, also without tokens.

    Attributes:
        local: the experts that are here.
    """

    def __init__(
        self, group: Group, local: LocalExperts, placement: Placement, sending: Sending = per_rank
    ) -> None:
        self.local = local
        self._group, self._placement, self._sending = group, placement, sending

    def __call__(
        self, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor
    ) -> torch.Tensor:
        """See ``moe.layer.Experts``."""
        group, ids = self._group, topk_ids.long()
        rows = self._sending(self._placement.rank[ids], group.size)
        slots = self._placement.slot[ids[rows.token]].masked_fill(~rows.keep, -1)
        # Ids are small whole numbers: float32 holds them, and the two travel as one message.
        labels = torch.cat((slots.float(), topk_weights[rows.token]), dim=1)
        vectors, coming = group.exchange(x[rows.token], rows.counts, "dispatch")
        labels = group.send_back(labels, rows.counts, coming, "labels")
        theirs, weights = (_dense(half) for half in labels.chunk(2, dim=1))
        done = self._run(vectors, weights, theirs.to(torch.int32))
        back = group.send_back(done, coming, rows.counts, "combine")
        return torch.zeros_like(x).index_add_(0, rows.token, back)

    def _run(self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        if not len(self.local.w1):  # more processes than experts
            return torch.zeros_like(x)
        return self.local(x, weights, ids)


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Rows side by side; ``contiguous`` lets a single row keep the strides of what it is cut of."""
    return x.flatten().view(x.shape)
