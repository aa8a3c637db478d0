"""moe_router: which experts a token goes to, and with what weight.

A model with many experts asks only a few of them about each token. Mixtral and Qwen take the top k
of a softmax; DeepSeek takes sigmoids, adds a bias that balances the load and only chooses (the
weight itself is without it), and first picks the best groups of experts, so that a token's experts
sit on few machines. It sorts the head of a short row: k times the largest, of equals the first.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks
from minilab.kernels.device import choose_backend, tl, triton
from minilab.kernels.spec import ARCHS, Config, Spec, config_for

SCORING = ("softmax", "sigmoid")
MAX_EXPERTS = 1024
TINY = 1e-20  # DeepSeek's: weights that are all 0 stay 0


@triton.jit
def _largest(scores, index, LAST: tl.constexpr):
    """Each row's largest score [T] and where it is [T]; never beyond LAST, whatever is in a row."""
    best = tl.max(scores, 1)
    return best, tl.min(tl.where(scores == best[:, None], index[None, :], LAST), 1)


@triton.jit
def _keep_best_groups(
    choice, expert, EXPERTS: tl.constexpr, GROUPS: tl.constexpr, TOPK_GROUP: tl.constexpr,
    PAIR: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Set all but the best groups to -inf. A group is worth its best expert, or its best PAIR."""
    of = expert // (EXPERTS // GROUPS)
    group = tl.arange(0, BLOCK_G)
    worth = tl.full([BLOCK_T, BLOCK_G], float("-inf"), tl.float32)
    for g in range(GROUPS):
        inside = tl.where((of == g)[None, :], choice, float("-inf"))
        value, at = _largest(inside, expert, EXPERTS - 1)
        if PAIR:
            inside = tl.where(expert[None, :] == at[:, None], float("-inf"), inside)
            value += tl.max(inside, 1)
        worth = tl.where((group == g)[None, :], value[:, None], worth)
    kept = tl.zeros(choice.shape, tl.int1)
    for _ in range(TOPK_GROUP):
        value, best = _largest(worth, group, GROUPS - 1)
        kept |= of[None, :] == best[:, None]
        worth = tl.where(group[None, :] == best[:, None], float("-inf"), worth)
    return tl.where(kept, choice, float("-inf"))


@triton.jit
def _router_kernel(
    weights, ids, logits, bias, factor, num_tokens, stride_logits,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr, SIGMOID: tl.constexpr, RENORMALIZE: tl.constexpr,
    GROUPS: tl.constexpr, TOPK_GROUP: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_T tokens, all experts."""
    token, expert = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_E)
    column = tl.arange(0, BLOCK_K)
    there, real = (token < num_tokens)[:, None], (expert < EXPERTS)[None, :]
    at = token.to(tl.int64)[:, None]
    x = tl.load(logits + at * stride_logits + expert[None, :], mask=there & real, other=0.0)
    x = tl.where(real, x.to(tl.float32), float("-inf"))
    if SIGMOID:
        score = 1.0 / (1.0 + tl.exp(-x))
    else:
        score = tl.exp(x - tl.max(x, 1)[:, None])
        score /= tl.sum(score, 1)[:, None]
    # Softmax and sigmoid keep the order, so without a bias the logits choose: no rounding, no ties.
    choice = x
    if bias is not None:
        choice = score + tl.load(bias + expert, mask=expert < EXPERTS, other=0.0)[None, :]
        choice = tl.where(real, choice, float("-inf"))
    if GROUPS > 1:
        choice = _keep_best_groups(
            choice, expert, EXPERTS, GROUPS, TOPK_GROUP, bias is not None, BLOCK_T, BLOCK_G
        )
    chosen = tl.zeros([BLOCK_T, BLOCK_K], tl.int32)
    weight = tl.zeros([BLOCK_T, BLOCK_K], tl.float32)
    for k in range(TOP_K):
        _, best = _largest(choice, expert, EXPERTS - 1)
        here = expert[None, :] == best[:, None]
        own = tl.sum(tl.where(here, score, 0.0), 1)
        chosen = tl.where((column == k)[None, :], best[:, None], chosen)
        weight = tl.where((column == k)[None, :], own[:, None], weight)
        choice = tl.where(here, float("-inf"), choice)
    if RENORMALIZE:
        weight /= tl.sum(weight, 1)[:, None] + 1e-20
    mask = there & (column < TOP_K)[None, :]
    tl.store(weights + at * TOP_K + column[None, :], weight * factor, mask=mask)
    tl.store(ids + at * TOP_K + column[None, :], chosen, mask=mask)


def moe_router(
    router_logits: torch.Tensor,
    top_k: int,
    *,
    scoring_func: str = "softmax",
    renormalize: bool = True,
    num_expert_group: int = 1,
    topk_group: int = 1,
    e_score_correction_bias: torch.Tensor | None = None,
    routed_scaling_factor: float = 1.0,
    config: Config | None = None,
    backend: str = "auto",
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Top-k routing (vLLM's fused_topk, and grouped_topk with more than one group).

    Args:
        router_logits: [num_tokens, num_experts], fp16, bf16 or fp32, finite; rows of any stride.
        top_k: experts per token.
        scoring_func: "softmax" over all experts, or "sigmoid" of each.
        renormalize: divide the weights of a token's experts by their sum.
        num_expert_group, topk_group: experts come from the best ``topk_group`` of so many groups of
            neighbours; a group is worth its best score, with a bias the sum of its best two.
        e_score_correction_bias: [num_experts] fp32, added to the scores that choose.
        routed_scaling_factor: what all weights are multiplied by, last.
        config: tiles to use instead of CONFIGS.
        backend: "auto", "triton", "interpreter" or "reference".
        out: the two results, to write into.

    Returns:
        topk_weights [num_tokens, top_k] fp32 and topk_ids [num_tokens, top_k] int32, best first.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("router_logits", router_logits, "num_tokens num_experts", checks.FLOATS, 1)
    bias = e_score_correction_bias
    if bias is not None:
        shapes.check("e_score_correction_bias", bias, "num_experts", (torch.float32,))
    num_tokens, experts = shapes["num_tokens"], shapes["num_experts"]
    if scoring_func not in SCORING:
        raise ValueError(f"scoring_func is {scoring_func!r}; it must be one of {SCORING}")
    _check_counts(experts, top_k, num_expert_group, topk_group, bias is not None)
    chosen = choose_backend("moe_router", router_logits.device, backend)
    given = out or (None, None)
    shape = (num_tokens, top_k)
    weights = checks.output(given[0], shape, torch.float32, router_logits, "out[0]")
    ids = checks.output(given[1], shape, torch.int32, router_logits, "out[1]")
    if chosen.name == "reference":
        found = moe_router_ref(
            router_logits, top_k, scoring_func=scoring_func, renormalize=renormalize,
            num_expert_group=num_expert_group, topk_group=topk_group,
            e_score_correction_bias=bias, routed_scaling_factor=routed_scaling_factor,
        )  # fmt: skip
        return weights.copy_(found[0]), ids.copy_(found[1])
    if num_tokens:
        config = config or config_for(CONFIGS, chosen.capability)
        power = triton.next_power_of_2
        _router_kernel[(triton.cdiv(num_tokens, config.tiles["BLOCK_T"]),)](
            weights, ids, router_logits, bias, routed_scaling_factor, num_tokens,
            router_logits.stride(0), experts, top_k, scoring_func == "sigmoid", renormalize,
            num_expert_group, topk_group, power(experts), power(top_k), power(num_expert_group),
            **config.tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return weights, ids


def moe_router_ref(
    router_logits: torch.Tensor,
    top_k: int,
    *,
    scoring_func: str = "softmax",
    renormalize: bool = True,
    num_expert_group: int = 1,
    topk_group: int = 1,
    e_score_correction_bias: torch.Tensor | None = None,
    routed_scaling_factor: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in plain torch, in fp32 or, where the logits are, in float64."""
    logits = router_logits if router_logits.dtype == torch.float64 else router_logits.float()
    scores = logits.sigmoid() if scoring_func == "sigmoid" else logits.softmax(1)
    bias = e_score_correction_bias
    choice = logits if bias is None else scores + bias
    if num_expert_group > 1:
        groups = choice.unflatten(1, (num_expert_group, -1))
        worth = groups.amax(2) if bias is None else groups.topk(2).values.sum(2)
        kept = torch.zeros_like(worth, dtype=torch.bool)
        kept.scatter_(1, _highest(worth, topk_group), True)
        choice = groups.masked_fill(~kept[:, :, None], float("-inf")).flatten(1)
    ids = _highest(choice, top_k)
    weights = scores.gather(1, ids)
    if renormalize:
        weights = weights / (weights.sum(1, keepdim=True) + TINY)
    return weights * routed_scaling_factor, ids.to(torch.int32)


def _highest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Indices of each row's highest, the lowest first among equals; topk does not say which."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :count]


def _check_counts(experts: int, top_k: int, groups: int, topk_group: int, pair: bool) -> None:
    if experts > MAX_EXPERTS:
        raise ValueError(f"router_logits has {experts} experts; it must have at most {MAX_EXPERTS}")
    if groups < 1 or experts % groups or (pair and groups > 1 and experts // groups < 2):
        least = " of two or more" if pair else ""
        raise ValueError(
            f"num_expert_group is {groups}; it must divide {experts} experts into groups{least}"
        )
    if not 1 <= topk_group <= groups:
        raise ValueError(f"topk_group is {topk_group}; it must be within 1 and {groups} groups")
    reach = topk_group * (experts // groups)
    if not 1 <= top_k <= reach:
        raise ValueError(f"top_k is {top_k}; it must be within 1 and the {reach} experts in reach")


def cost(num_tokens: int, num_experts: int, top_k: int, *, logit_bytes: int = 4) -> tuple[int, int]:
    """(bytes, FLOPs): logits read, weights and ids written; about five operations a logit to score
    it and one for each of the top k, none of them in matrices."""
    moved = num_tokens * (num_experts * logit_bytes + 8 * top_k)
    return moved, num_tokens * num_experts * (5 + top_k)


CONFIGS = dict.fromkeys(ARCHS, Config({"BLOCK_T": 4}, warps=4))


def _spec(label: str, grouped: bool, fast: bool = False) -> Spec:
    types = {"weights": "*fp32", "ids": "*i32", "logits": "*fp32", "bias": "*fp32"}
    types |= {"factor": "fp32", "num_tokens": "i32", "stride_logits": "i32"}
    constants: dict[str, Any] = {"TOP_K": 8, "BLOCK_K": 8, "SIGMOID": grouped, "RENORMALIZE": True}
    if grouped:
        constants |= {"EXPERTS": 256, "BLOCK_E": 256, "GROUPS": 8, "BLOCK_G": 8, "TOPK_GROUP": 4}
    else:
        constants |= {"EXPERTS": 128, "BLOCK_E": 128, "GROUPS": 1, "BLOCK_G": 1, "TOPK_GROUP": 1}
        constants |= {"bias": None}
        types.pop("bias")
    return Spec(
        f"moe_router {label}", _router_kernel, types, constants, CONFIGS,
        any_value=("num_tokens",), fast=fast, dtype="fp32",
        case=f"4096 tokens, top 8 of {constants['EXPERTS']}",
        cost=cost(4096, constants["EXPERTS"], 8),
    )  # fmt: skip


AOT = (_spec("softmax", False), _spec("grouped sigmoid", True, fast=True))
