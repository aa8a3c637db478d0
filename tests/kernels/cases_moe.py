"""Router, alignment and experts against their references, on the interpreter or a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_device import BACKEND, DEVICE, TOLERANCE, random_like, relative_error

from minilab.kernels.device import INTERPRETED
from minilab.kernels.moe import CONFIGS, fused_experts, fused_experts_ref
from minilab.kernels.moe_align import Aligned, capacity
from minilab.kernels.moe_align import moe_align_block_size as align
from minilab.kernels.moe_align import moe_align_block_size_ref as align_ref
from minilab.kernels.moe_router import moe_router, moe_router_ref
from minilab.kernels.spec import Config

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# Small tiles: several of them even in small matrices.
SMALL = Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, warps=4, stages=1)
DEEPSEEK: dict[str, Any] = {
    "scoring_func": "sigmoid", "num_expert_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _poisoned_buffers():
    """torch.empty gives NaN: what a kernel leaves unwritten, in out or in between, shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def check_router(
    tokens: int, experts: int, top_k: int, dtype: torch.dtype = torch.float32, **options: Any
) -> None:
    """The same experts in the same order; weights as in float64."""
    logits = random_like((tokens, experts), 1).mul(2).to(DEVICE, dtype)
    weights = torch.full((tokens, top_k), float("nan"), device=DEVICE)
    ids = torch.full((tokens, top_k), -7, dtype=torch.int32, device=DEVICE)
    got = moe_router(logits, top_k, **options, backend=BACKEND, out=(weights, ids))
    assert got[0] is weights and got[1] is ids
    if (bias := options.get("e_score_correction_bias")) is not None:
        options["e_score_correction_bias"] = bias.double()
    wanted = moe_router_ref(logits.double(), top_k, **options)
    assert torch.equal(ids, wanted[1])
    assert relative_error(weights, wanted[0], [1] * tokens) <= 1e-5


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(0, 8, 2), (1, 8, 8), (9, 60, 4)])
def test_softmax(tokens, experts, top_k, renormalize):
    """As Mixtral, Qwen: all experts, one token, numbers of experts that are no power of two."""
    check_router(tokens, experts, top_k, renormalize=renormalize)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_router_ties(dtype):
    """In 16 bits logits are often equal: the lower expert comes first."""
    check_router(20, 160, 6, dtype)


def test_deepseek_v3():
    """Sigmoid, bias, best 4 of 8 groups by their best two; the weight is without the bias."""
    bias = random_like((256,), 2).mul(0.1).to(DEVICE, torch.float32)
    check_router(6, 256, 8, **DEEPSEEK, e_score_correction_bias=bias)


def test_deepseek_v2():
    """Softmax, 8 groups of 20 by their best one, weights as they are, times 16."""
    options = {"num_expert_group": 8, "topk_group": 3, "routed_scaling_factor": 16.0}
    check_router(6, 160, 6, renormalize=False, **options)


def test_bias_chooses_only():
    """A huge bias brings an expert in, and leaves its weight alone."""
    logits = torch.zeros(1, 8, device=DEVICE)
    bias = torch.zeros(8, device=DEVICE)
    bias[5] = 100.0
    options: dict[str, Any] = {"scoring_func": "sigmoid", "e_score_correction_bias": bias}
    weights, ids = moe_router(logits, 2, renormalize=False, **options, backend=BACKEND)
    assert ids.tolist() == [[5, 0]] and weights.tolist() == [[0.5, 0.5]]


def check_align(topk_ids: torch.Tensor, block_size: int, experts: int) -> Aligned:
    """Equal to the reference in every place, unused ones too."""
    places = capacity(topk_ids.numel(), block_size, experts)
    out = Aligned(
        *(
            torch.full((size,), -99, dtype=torch.int32, device=DEVICE)
            for size in (places, places // block_size, 1)
        )
    )
    config = Config({"BLOCK": 32})
    got = align(topk_ids.to(DEVICE), block_size, experts, config=config, backend=BACKEND, out=out)
    for mine, its in zip(got, align_ref(topk_ids.to(DEVICE), block_size, experts), strict=True):
        assert torch.equal(mine, its)
    return got


def random_ids(tokens: int, experts: int, top_k: int, seed: int = 0) -> torch.Tensor:
    """Distinct experts for each token."""
    scores = random_like((tokens, experts), seed)
    return scores.topk(top_k, dim=1).indices.to(torch.int32)


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 5, 1), (40, 12, 3)])
def test_align(tokens, experts, top_k, block_size):
    """Some experts empty, last tiles partly filled, more pairs than a program reads at once."""
    check_align(random_ids(tokens, experts, top_k), block_size, experts)


@pytest.mark.parametrize("expert", [0, 3, 7])
def test_align_all_to_one(expert):
    """The first, a middle, the last expert takes everything; full tiles need no padding."""
    got = check_align(torch.full((32, 1), expert, dtype=torch.int32), 16, 8)
    assert got.num_tokens_post_padded.item() == 32


def test_align_absent_experts():
    """-1 is left out; all of them -1 leaves nothing to do."""
    ids = random_ids(20, 8, 2)
    ids[ids >= 4] = -1
    got = check_align(ids, 16, 4)
    assert (got.sorted_token_ids < 40).sum() == (ids >= 0).sum()
    assert check_align(torch.full((4, 2), -1, dtype=torch.int32), 16, 4)[2].item() == 0


def make_experts(
    dtype: torch.dtype, experts: int, hidden: int, inner: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """w1, w2 of a size that keeps results near 1."""
    w1 = random_like((experts, 2 * inner, hidden), 3) / hidden**0.5
    w2 = random_like((experts, hidden, inner), 4) / inner**0.5
    return w1.to(DEVICE, dtype), w2.to(DEVICE, dtype)


def check_experts(
    topk_ids: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    *,
    experts: int = 6,
    hidden: int = 64,
    inner: int = 48,
    config: Config | None = SMALL,
) -> None:
    """Each token's sum over its experts; experts that nobody asked hold NaN."""
    tokens, top_k = topk_ids.shape
    x = random_like((tokens, hidden), 5).to(DEVICE, dtype)
    w1, w2 = make_experts(dtype, experts, hidden, inner)
    unused = [e for e in range(experts) if not (topk_ids == e).any()]
    w1[unused], w2[unused] = float("nan"), float("nan")
    weights = random_like((tokens, top_k), 6).softmax(1).to(DEVICE, torch.float32)
    ids = topk_ids.to(DEVICE)
    weights[ids < 0] = float("nan")
    out = torch.full_like(x, float("nan"))
    got = fused_experts(x, w1, w2, weights, ids, config=config, backend=BACKEND, out=out)
    assert got is out
    wanted = fused_experts_ref(x.double(), w1, w2, weights, ids)
    # The interpreter cuts bf16 off instead of rounding it, here three times: on the way, and out.
    cut = 2 if INTERPRETED and dtype == torch.bfloat16 else 1
    assert relative_error(got, wanted, [1] * tokens) <= cut * TOLERANCE[dtype]
    assert (got[(ids < 0).all(1)] == 0).all()


@pytest.mark.parametrize("config", [None, SMALL, CONFIGS[75]], ids=["own", "small", "T4"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_experts(dtype, config):
    """Ragged shares; neither hidden nor intermediate size is a multiple of the tile."""
    check_experts(random_ids(33, 6, 2), dtype, hidden=80, inner=40, config=config)


def test_experts_many_rows():
    """More rows per expert than the tiles for decoding take."""
    check_experts(random_ids(60, 2, 1), torch.float16, experts=2, config=None)


@pytest.mark.parametrize("tokens", [0, 1])
def test_experts_few_tokens(tokens):
    """No token and one token; nearly all experts empty."""
    check_experts(random_ids(tokens, 6, 3), torch.float16)


@pytest.mark.parametrize("expert", [0, 5])
def test_experts_all_to_one(expert):
    """The load that breaks a plan made for the average."""
    check_experts(torch.full((40, 1), expert, dtype=torch.int32))


def test_absent_experts():
    """Under expert parallelism -1 marks experts of other ranks; their weights are not looked at."""
    ids = random_ids(20, 12, 3)
    ids[ids >= 6] = -1
    ids[7] = -1
    check_experts(ids)


def test_input_in_a_wider_tensor():
    """Rows of any stride."""
    wide = random_like((10, 100), 7).to(DEVICE, torch.float32)
    w1, w2 = make_experts(torch.float32, 4, 64, 32)
    weights, ids = torch.full((10, 2), 0.5, device=DEVICE), random_ids(10, 4, 2).to(DEVICE)
    sliced, whole = (
        fused_experts(x, w1, w2, weights, ids, config=SMALL, backend=BACKEND)
        for x in (wide[:, 20:84], wide[:, 20:84].contiguous())
    )
    assert torch.equal(sliced, whole)


def test_the_same_every_time():
    """No atomics: sums are added up in one order."""
    ids = random_ids(50, 6, 3).to(DEVICE)
    x = random_like((50, 64), 8).to(DEVICE, torch.float16)
    w1, w2 = make_experts(torch.float16, 6, 64, 32)
    weights = torch.full((50, 3), 1 / 3, device=DEVICE)
    results = [fused_experts(x, w1, w2, weights, ids, backend=BACKEND) for _ in range(2)]
    assert torch.equal(*results)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_sweep(seed):
    """Random sizes and loads, the router's choice fed to the experts."""
    draw = torch.Generator().manual_seed(500 + seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    experts, tokens = one_of(4, 8, 20, 64), one_of(1, 2, 17, 90)
    top_k = one_of(1, 2, 4)
    dtype = one_of(*DTYPES)
    groups = one_of(1, 2, 4)
    options = {"num_expert_group": groups, "topk_group": max(1, groups // 2)}
    top_k = min(top_k, experts // groups * options["topk_group"])
    check_router(
        tokens, experts, top_k, dtype, scoring_func=one_of("softmax", "sigmoid"), **options
    )
    ids = random_ids(tokens, experts, top_k, seed)
    check_align(ids, one_of(1, 16, 32), experts)
    check_experts(
        ids, dtype, experts=experts, hidden=one_of(32, 96, 136), inner=one_of(16, 64, 72),
        config=one_of(None, SMALL),
    )  # fmt: skip
