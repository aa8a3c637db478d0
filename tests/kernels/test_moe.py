"""moe, moe_router, moe_align: the kernels where they can run, and what needs no kernel."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from on_device import random_like

from minilab.kernels import moe, moe_align, moe_router

I32 = torch.int32


def test_on_the_interpreter(run_cases):
    """The kernels, in Triton's interpreter."""
    run_cases("cases_moe.py", "interpreter")


@pytest.mark.slow
def test_sweep_on_the_interpreter(run_cases):
    """Random combinations."""
    run_cases("cases_moe.py", "interpreter", "slow")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The same cases, compiled."""
    run_cases("cases_moe.py", "gpu", "slow or not slow")


def route_by_hand(logits: list[float], bias: list[float], groups: int, kept: int, top_k: int):
    """DeepSeek-V3's rule for one token, in plain Python: expert ids and weights."""
    scores = [1 / (1 + math.exp(-x)) for x in logits]
    choice = [score + b for score, b in zip(scores, bias, strict=True)]
    size = len(logits) // groups
    worth = [sum(sorted(choice[g * size : (g + 1) * size])[-2:]) for g in range(groups)]
    best = sorted(range(groups), key=lambda g: -worth[g])[:kept]
    reach = [e for e in range(len(logits)) if e // size in best]
    ids = sorted(reach, key=lambda e: -choice[e])[:top_k]
    total = sum(scores[e] for e in ids)
    return ids, [2.5 * scores[e] / total for e in ids]


def test_router_twin_is_deepseeks_rule():
    """Groups by their best two with the bias, experts with the bias, weights without it."""
    logits, bias = random_like((30, 32), 1) * 2, random_like((32,), 2) * 0.2
    weights, ids = moe_router.moe_router_ref(
        logits, 4, scoring_func="sigmoid", num_expert_group=8, topk_group=3,
        e_score_correction_bias=bias, routed_scaling_factor=2.5,
    )  # fmt: skip
    for token in range(30):
        own = route_by_hand(logits[token].tolist(), bias.tolist(), 8, 3, 4)
        assert ids[token].tolist() == own[0]
        assert weights[token].tolist() == pytest.approx(own[1], rel=1e-12)


def test_router_twin_is_torch_topk():
    """Softmax over all experts; the first k of torch's own order."""
    logits = random_like((50, 20), 3)
    weights, ids = moe_router.moe_router_ref(logits, 4, renormalize=False)
    wanted = logits.softmax(1).topk(4)
    assert torch.equal(ids.long(), wanted.indices) and torch.allclose(weights, wanted.values)


def test_aligned_tiles():
    """Each pair once, in its expert's tiles, in its order; padding only at the end of an expert."""
    ids = torch.tensor([[0, 3], [3, 1], [3, 0], [-1, 3], [3, 3]], dtype=I32)
    got = moe_align.moe_align_block_size_ref(ids, 4, 5)
    places = got.sorted_token_ids.view(-1, 4).tolist()
    assert got.num_tokens_post_padded.item() == 16
    assert got.expert_ids.tolist() == [0, 1, 3, 3, *[-1] * (len(places) - 4)]
    assert places[:4] == [[0, 5, 10, 10], [3, 10, 10, 10], [1, 2, 4, 7], [8, 9, 10, 10]]
    assert {pair for row in places[4:] for pair in row} <= {10}


@pytest.mark.parametrize("pairs", range(1, 8))
def test_capacity_is_enough_and_reached(pairs):
    """All pairs to experts of their own pads most."""
    worst = moe_align.moe_align_block_size_ref(torch.arange(pairs, dtype=I32)[:, None], 4, 9)
    assert len(worst.sorted_token_ids) == worst.num_tokens_post_padded.item() == 4 * pairs


def test_experts_twin_is_a_dense_mixture():
    """All experts on all tokens, weighted by a mostly empty matrix."""
    x, w1, w2 = random_like((7, 12), 1), random_like((5, 16, 12), 2), random_like((5, 12, 8), 3)
    weights, ids = moe_router.moe_router_ref(random_like((7, 5), 4), 2)
    gate, up = torch.einsum("th,eih->tei", x, w1).chunk(2, dim=2)
    every = torch.einsum("tei,ehi->teh", gate * gate.sigmoid() * up, w2)
    dense = torch.zeros(7, 5, dtype=torch.float64).scatter(1, ids.long(), weights)
    got = moe.fused_experts_ref(x, w1, w2, weights, ids)
    assert torch.allclose(got, torch.einsum("te,teh->th", dense, every), rtol=1e-12, atol=1e-12)


def test_costs_by_hand():
    """Decode-sized batches read nearly all experts; the FLOPs are those of the asked ones."""
    moved, flops = moe.cost(1, 128, 8, 2048, 768)
    assert moved == 8 * 3 * 2048 * 768 * 2 + 2 * 2048 * 2 + 64
    assert flops == 8 * 3 * 2 * 2048 * 768
    # 1 - (15/16)^64 = 98.4 % of the experts see a token of 64.
    share = moe.cost(64, 128, 8, 2048, 768)[0] / moe.cost(1, 128, 8, 2048, 768)[0]
    assert share == pytest.approx(128 * 0.98392 / 8, rel=1e-3)
    assert moe.cost(64, 128, 8, 2048, 768, active_experts=2)[0] < moved
    assert moe_router.cost(10, 128, 8)[0] == 10 * (4 * 128 + 64)
    assert moe_align.cost(100, 4, 16)[0] == 4 * (100 + 160 + 10)


def good(kernel: Any) -> dict[str, Any]:
    """Arguments that ``kernel`` takes."""
    if kernel is moe_router.moe_router:
        return {"router_logits": torch.randn(3, 8), "top_k": 2}
    ids = torch.tensor([[0, 3], [1, 2], [-1, 0]], dtype=I32)
    if kernel is moe_align.moe_align_block_size:
        return {"topk_ids": ids, "block_size": 16, "num_experts": 4}
    return {
        "hidden_states": torch.randn(3, 16),
        "w1": torch.randn(4, 12, 16),
        "w2": torch.randn(4, 16, 6),
        "topk_weights": torch.rand(3, 2),
        "topk_ids": ids,
    }


BAD: dict[Any, dict[str, dict[str, Any]]] = {
    moe_router.moe_router: {
        "router_logits is float64; it must be float16 or": {
            "router_logits": torch.zeros(3, 8).double()
        },
        "router_logits has shape (8,); it must be [num_tokens, num_experts]": {
            "router_logits": torch.zeros(8)
        },
        "router_logits has 1025 experts; it must have at most 1024": {
            "router_logits": torch.zeros(1, 1025)
        },
        "scoring_func is 'tanh'; it must be one of": {"scoring_func": "tanh"},
        "top_k is 9; it must be within 1 and the 8 experts in reach": {"top_k": 9},
        "top_k is 0; it must be within 1": {"top_k": 0},
        "top_k is 3; it must be within 1 and the 2 experts in reach": {
            "top_k": 3,
            "num_expert_group": 4,
        },
        "num_expert_group is 3; it must divide 8 experts into groups": {"num_expert_group": 3},
        "num_expert_group is 8; it must divide 8 experts into groups of two or more": {
            "num_expert_group": 8,
            "e_score_correction_bias": torch.zeros(8),
        },
        "topk_group is 5; it must be within 1 and 4 groups": {
            "num_expert_group": 4,
            "topk_group": 5,
        },
        "e_score_correction_bias has shape (7,)": {"e_score_correction_bias": torch.zeros(7)},
        "out[1] is int64 of shape (3, 2) on cpu; it must be int32": {
            "out": (torch.zeros(3, 2), torch.zeros(3, 2).long())
        },
    },
    moe_align.moe_align_block_size: {
        "topk_ids is int64; it must be int32": {"topk_ids": torch.zeros(3, 2).long()},
        "block_size is 0; it must be at least 1": {"block_size": 0},
        "topk_ids goes from -1 to 3; it must be within -1 and num_experts - 1 = 2": {
            "num_experts": 3
        },
        "topk_ids goes from -2 to -2": {"topk_ids": torch.full((3, 2), -2, dtype=I32)},
        "out.sorted_token_ids is int32 of shape (1,)": {
            "out": moe_align.Aligned(*[torch.zeros(1, dtype=I32)] * 3)
        },
    },
    moe.fused_experts: {
        "w1 has 10 rows per expert; it must have 2 * intermediate_size = 12": {
            "w1": torch.randn(4, 10, 16)
        },
        "w2 has shape (3, 16, 6)": {"w2": torch.randn(3, 16, 6)},
        "w2 is float16; it must be float32": {"w2": torch.randn(4, 16, 6).half()},
        "w1 has strides": {"w1": torch.randn(4, 16, 12).mT},
        "topk_weights is float16; it must be float32": {"topk_weights": torch.rand(3, 2).half()},
        "topk_ids has shape (3, 1)": {"topk_ids": torch.zeros(3, 1, dtype=I32)},
        "topk_ids goes from 4 to 4; it must be within -1 and num_experts - 1 = 3": {
            "topk_ids": torch.full((3, 2), 4, dtype=I32)
        },
        "topk_ids is on meta; hidden_states is on cpu": {
            "topk_ids": torch.zeros(3, 2, dtype=I32, device="meta")
        },
        "out is float32 of shape (3, 8)": {"out": torch.zeros(3, 8)},
    },
}
CASES = [
    pytest.param(kernel, change, said, id=f"{kernel.__name__}: {said}")
    for kernel, cases in BAD.items()
    for said, change in cases.items()
]


@pytest.mark.parametrize(("kernel", "change", "said"), CASES)
def test_bad_argument(kernel, change, said):
    """One changed argument, one sentence about it; without the change nothing is refused."""
    kernel(**good(kernel))
    with pytest.raises(ValueError, match=re.escape(said)):
        kernel(**{**good(kernel), **change})
