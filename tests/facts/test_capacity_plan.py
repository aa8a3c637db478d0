"""Capacity of whole deployments, against sizes that engines logged (threads named by number)."""

from __future__ import annotations

import math

import pytest

from minilab.facts.capacity_limits import max_concurrency
from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.capacity_ranks import ranks
from minilab.facts.capacity_report import CapacityReport, capacity
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model


def given(name: str, gib: float | tuple[float, ...], **more: object) -> Deployment:
    sizes = gib if isinstance(gib, tuple) else (gib,)
    return Deployment(get_model(name), available=tuple(s * GIB for s in sizes), **more)  # type: ignore[arg-type]


def in_window(report: CapacityReport, gib: float, logged: int) -> bool:
    """Engines print GiB to two decimals: 0.005 GiB and a block of slack."""
    return abs(report.tokens - logged) <= 0.005 * GIB / report.kv_bytes_per_token + 16


# thread, model, KV dtype, tp, GiB, tokens logged, its max-len, its printed concurrency (0: none)
LOGGED = [
    ("vllm#10517", "llama-3.1-8b", "fp16", 1, 3.81, 31_232, 20_000, 1.56),
    ("vllm#10517, 29k", "llama-3.1-8b", "fp16", 1, 2.89, 23_648, 29_000, 0.82),
    ("vllm#33263", "qwen3-1.7b", "bf16", 1, 18.78, 175_856, 1024, 0),
    ("vllm#25350", "qwen3-30b-a3b", "fp8", 1, 10.55, 230_528, 100_000, 2.31),
    ("vllm docs", "qwen3-4b", "bf16", 1, 11.47, 83_488, 32_768, 2.55),
    ("vllm docs, fp8", "qwen3-4b", "fp8", 1, 11.47, 166_992, 32_768, 5.10),
    ("vllm#34076", "qwen3-30b-a3b", "bf16", 1, 3.18, 34_736, 262_144, 0),
    ("vllm#32105 (GLM-4.7: as 4.6)", "glm-4.6", "bf16", 1, 28.57, 81_392, 202_752, 0),
]


@pytest.mark.parametrize("row", LOGGED, ids=[row[0] for row in LOGGED])
def test_logged_rows(row: tuple[str, str, str, int, float, int, int, float]) -> None:
    """A calculator that is off by a block rounding or a factor of the GQA ratio misses these."""
    _, name, dtype, tp, gib, logged, length, times = row
    report = capacity(given(name, gib, kv_dtype=dtype, tp=tp), length)
    assert in_window(report, gib, logged)
    if times:
        assert max_concurrency(report.deployment, report.found, length) == pytest.approx(
            times, abs=0.02
        )


def test_min_over_ranks_explains_the_rows_outside() -> None:
    """vllm#13061 logged 81,536 while a worker printed 8.69 GiB; vllm#21348 178,880 beside 8.11."""
    both = capacity(given("qwen2.5-14b", (7.46, 8.69), tp=2), 8192)
    assert in_window(both, 7.46, 81_536) and both.deciding.rank == 0
    assert "minimum over ranks" in both.notes()[0]
    one = capacity(given("qwen3-235b-a22b", 8.11, tp=4), 8192)
    assert one.kv_bytes_per_token == 48_128
    assert 1.01 < one.tokens / 178_880 < 1.013
    other = 178_880 * 48_128 / GIB  # what the smallest rank must have had
    assert capacity(given("qwen3-235b-a22b", (8.11, other), pp=1, tp=2), 8192).tokens < 2 * 178_896


def test_pipeline_takes_the_smallest_stage() -> None:
    """Uneven stages: one with more layers, one with less memory; either can decide."""
    more_layers = capacity(given("qwen3-30b-a3b", 10.0, pp=2, pp_layers=(16, 32)), 8192)
    assert more_layers.deciding.stage == 1
    assert more_layers.tokens == 10 * GIB // (98_304 * 32 // 48 * 16) * 16
    less_memory = capacity(given("qwen3-30b-a3b", (4.0, 10.0), pp=2, pp_layers=(16, 32)), 8192)
    assert less_memory.deciding.stage == 0
    with pytest.raises(InputError, match=r"add up to the model's 48 layers"):
        capacity(given("qwen3-30b-a3b", 10.0, pp=2, pp_layers=(16, 16)), 8192)


def test_latent_is_whole_on_every_rank_and_dp_attention_is_the_way_out() -> None:
    """vllm#51454: DP8 gave 7.7 times the KV of TP8 for a model with one latent per token."""
    split = Deployment(get_model("deepseek-v3"), get_gpu("h200"), "fp8", tp=8)
    spread = Deployment(get_model("deepseek-v3"), get_gpu("h200"), "fp8", tp=8, dp=8)
    one, eight = capacity(split, 32_768), capacity(spread, 32_768)
    assert one.kv_bytes_per_token == eight.kv_bytes_per_token == 61 * 576
    assert 5 < eight.tokens * 8 / one.tokens < 8  # attention weights are copied for it
    assert any("whole latent" in note for note in one.notes())


def test_mha_fallback_of_an_mla_model() -> None:
    """vllm#4650: 16 heads of a padded 256 on each of 8 GPUs, 14 times the latent."""
    model = get_model("deepseek-v2")
    assert model.as_mha(256).kv_bytes_per_token("bf16", 8) == 983_040
    assert model.kv_bytes_per_token("bf16", 8) == 69_120
    assert get_model("qwen3-8b").as_mha(256) == get_model("qwen3-8b")


@pytest.mark.parametrize(
    ("dtype", "entry"),
    [("bf16", 576 * 2), ("fp8", 576), ("fp8_ds_mla", 656)],
)
def test_latent_formats_and_the_indexer(dtype: str, entry: int) -> None:
    """The indexer's 132 bytes a layer are KV memory too, and no GPU may leave them out."""
    report = capacity(given("deepseek-v3.2", 40.0, kv_dtype=dtype), 8192)
    assert report.kv_bytes_per_token == 61 * entry
    assert report.tokens == 40 * GIB // ((61 * entry + 61 * 132) * 16) * 16


def test_hybrid_sizes_of_hf_mem() -> None:
    """hf-mem#70: gpt-oss-20b, 32 requests of 8,192: 12.00 GiB all full, 6.09 with windows."""
    model = get_model("gpt-oss-20b")
    report = capacity(given("gpt-oss-20b", 32 * model.kv_bytes(8192) / GIB), 8192)
    assert report.deciding.available / GIB == pytest.approx(6.09, abs=0.005)
    assert max_concurrency(report.deployment, report.found, 8192) == pytest.approx(32)
    full = capacity(given("gpt-oss-20b", 12.0), 8192)
    assert full.tokens == 32 * 8192


def test_budget_of_three_ranks() -> None:
    """vllm#16570: 0.13, 0.04 and 0.09 GiB were left on three ranks; the second decides."""
    ranked = tuple(x * GIB for x in (0.34, 0.43, 0.38, 0.38))
    gpu = get_gpu("a100-40g")
    deployment = Deployment(
        get_model("qwen2.5-72b"),
        gpu=type(gpu)(**{**gpu.__dict__, "mem_bytes": int(39.38 * GIB)}),
        tp=4,
        utilization=0.95,
        weights=(34.43 * GIB,),
        non_torch=ranked,
        activation=(2.51 * GIB,),
    )
    left = [rank.available / GIB for rank in ranks(deployment)]
    assert left[:3] == pytest.approx([0.13, 0.04, 0.09], abs=0.0051)
    report = capacity(deployment, 512)
    assert report.deciding.rank == 1 and abs(report.tokens - 524) <= 32
    assert report.range is None


def test_terms_add_up_and_the_range_holds_the_answer() -> None:
    for name, tp, pp in (("llama-3.1-8b", 1, 1), ("deepseek-v3", 8, 2), ("gemma-3-27b", 2, 1)):
        d = Deployment(get_model(name), get_gpu("h200"), tp=tp, pp=pp, cuda_graphs=(0.3 * GIB,))
        report = capacity(d, 4096)
        total = math.fsum(size for _, size, _ in report.deciding.terms)
        assert total == pytest.approx(report.deciding.available)
        assert report.range is not None
        low, high = report.range["tokens"]
        assert low < report.tokens < high
        weights = sum(-size for rank in report.found for n, size, _ in rank.terms if n == "weights")
        tables = 2 * d.model.embedding_params if d.model.tied else 0
        assert weights == pytest.approx(d.model.weight_bytes() + tables, rel=1e-6)


def test_drafts_take_their_share() -> None:
    """Speculation was blamed for an out-of-memory that its own KV and weights explain."""
    plain = Deployment(get_model("llama-3.1-70b"), get_gpu("h100"), tp=4)
    with_model = Deployment(
        get_model("llama-3.1-70b"), get_gpu("h100"), tp=4, draft=get_model("llama-3.2-1b")
    )
    base, draft = capacity(plain, 8192), capacity(with_model, 8192)
    per_gpu = get_model("llama-3.2-1b").kv_bytes_per_token("bf16", 4)
    assert draft.deciding.extra_per_token == per_gpu
    lost = base.deciding.available - draft.deciding.available
    assert lost == pytest.approx(get_model("llama-3.2-1b").weight_bytes() / 4)
    assert draft.tokens < base.tokens
    mtp = capacity(Deployment(get_model("deepseek-v3"), get_gpu("h200"), tp=8, draft_layers=1), 1)
    assert mtp.deciding.extra_per_token == 1152
    names = {name: -size for name, size, _ in mtp.deciding.terms}
    assert names["draft weights"] * 8 / 1e9 == pytest.approx(11.5, rel=0.03)  # README_WEIGHTS.md


def test_a_full_gpu_is_refused_with_a_way_out() -> None:
    with pytest.raises(InputError, match=r"75\d\.\d\d GiB per GPU before any KV.*use more GPUs"):
        capacity(Deployment(get_model("llama-3.1-405b"), get_gpu("h100")), 8192)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tp": 0}, "tp is 0"),
        ({"tp": 8, "dp": 3}, "dp must divide tp"),
        ({"utilization": 90}, "utilization is 90"),
        ({"tp": 4, "weights": (1.0, 2.0, 3.0)}, "3 sizes for weights"),
    ],
    ids=["tp", "dp", "utilization", "sizes"],
)
def test_bad_deployments(more: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Deployment(get_model("llama-3.1-8b"), get_gpu("h100"), **more)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="neither memory for KV nor a GPU"):
        Deployment(get_model("llama-3.1-8b"))
