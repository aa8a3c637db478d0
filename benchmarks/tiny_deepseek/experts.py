"""The mixture of experts: who is chosen, and the chosen ones' sum with its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear, silu

from tiny_deepseek.config import C
from tiny_deepseek.parameters import Params


def route(scores: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, weights) [tokens, top_k]: the best experts of the best groups; the bias only chooses.

    A group counts as much as its two best experts do (DeepSeek-V3, arXiv 2412.19437, 2.1.2).
    """
    with torch.no_grad():
        choice = (scores + bias).view(len(scores), C["n_group"], -1)
        best = choice.topk(2, dim=-1).values.sum(-1)
        groups = best.topk(C["topk_group"], dim=-1).indices
        closed = torch.ones_like(best, dtype=torch.bool).scatter_(1, groups, False)
        choice = choice.masked_fill(closed[..., None], -torch.inf).flatten(1)
        ids = choice.topk(C["num_experts_per_tok"], dim=-1).indices
    chosen = scores.gather(1, ids)
    return ids, chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * C["routed_scaling_factor"]


class Experts(torch.autograd.Function):
    """The routed experts: pairs (token, expert) sorted by expert, one product per expert.

    Written by hand because autograd would keep and sum one full-size gradient per expert.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        top_k = ids.shape[1]
        order = ids.flatten().argsort()
        ends = ids.flatten().bincount(minlength=len(down)).cumsum(0).tolist()
        share = weights.flatten()[order, None]
        xs = x[order // top_k]
        both = x.new_empty(len(order), gate_up.shape[1])
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(xs[first:end], gate_up[e].t(), out=both[first:end])
        gate, up = both.chunk(2, dim=1)
        inner = silu(gate) * up
        mixed = inner * share
        ys = torch.empty_like(xs)
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(mixed[first:end], down[e].t(), out=ys[first:end])
        ctx.save_for_backward(xs, both, inner, mixed, share, order, gate_up, down)
        ctx.ends, ctx.top_k = ends, top_k
        return _sum_per_token(ys, order, top_k)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        xs, both, inner, mixed, share, order, gate_up, down = ctx.saved_tensors
        ends, top_k = ctx.ends, ctx.top_k
        grads = grad[order // top_k]
        d_mixed = torch.empty_like(mixed)
        d_down, d_gate_up = torch.empty_like(down), torch.empty_like(gate_up)
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(grads[first:end], down[e], out=d_mixed[first:end])
            torch.mm(grads[first:end].t(), mixed[first:end], out=d_down[e])
        d_share = (d_mixed * inner).sum(1)
        d_inner = d_mixed * share
        gate, up = both.chunk(2, dim=1)
        sigmoid = gate.sigmoid()
        d_gate = d_inner * up * (sigmoid * (1 + gate * (1 - sigmoid)))
        d_both = torch.cat((d_gate, d_inner * gate * sigmoid), dim=1)
        d_xs = torch.empty_like(xs)
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(d_both[first:end], gate_up[e], out=d_xs[first:end])
            torch.mm(d_both[first:end].t(), xs[first:end], out=d_gate_up[e])
        d_weights = torch.empty_like(d_share)
        d_weights[order] = d_share
        return (
            _sum_per_token(d_xs, order, top_k),
            d_gate_up,
            d_down,
            None,
            d_weights.view(-1, top_k),
        )


def _sum_per_token(rows: torch.Tensor, order: torch.Tensor, top_k: int) -> torch.Tensor:
    unsorted = torch.empty_like(rows)
    unsorted[order] = rows
    return unsorted.view(-1, top_k, rows.shape[1]).sum(1)


def swiglu(x: torch.Tensor, params: Params, at: str) -> torch.Tensor:
    """The MLP whose parameters' names begin with ``at``: down(silu(gate) * up)."""
    gate = silu(linear(x, params[at + "gate_proj.weight"]))
    up = linear(x, params[at + "up_proj.weight"])
    return linear(gate * up, params[at + "down_proj.weight"])
