"""Capacity against sizes that real engines logged (public threads, named by number)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts.capacity import (
    activation_bytes,
    budget_bytes,
    default_kv_blocks,
    kv_budget,
    kv_tokens,
    max_context,
    max_sequences,
)
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model, models

GIB = 2**30

# (thread, model, KV dtype, tp, GiB for KV as logged, tokens as logged).
LOGGED = [
    ("vllm#10517", "llama-3.1-8b", "fp16", 1, 3.81, 31_232),
    ("vllm#33263", "qwen3-1.7b", "bf16", 1, 18.78, 175_856),
    ("vllm#25350", "qwen3-30b-a3b", "fp8", 1, 10.55, 230_528),
    ("vllm#25350, needed", "qwen3-30b-a3b", "fp8", 1, 10.12, 221_000),
    ("vllm docs quantized_kvcache.md", "qwen3-4b", "bf16", 1, 11.47, 83_488),
    ("vllm docs quantized_kvcache.md", "qwen3-4b", "fp8", 1, 11.47, 166_992),
    ("FreeToken#126", "qwen3-1.7b", "bf16", 1, 2.90, 27_142),
    ("vllm#15871, needed", "deepseek-v2-lite", "bf16", 1, 0.95, 32_768),
    ("vllm#13061, smallest rank", "qwen2.5-14b", "bf16", 2, 7.46, 81_536),
]


@pytest.mark.parametrize(("thread", "name", "dtype", "tp", "gib", "logged"), LOGGED)
def test_tokens_as_engines_logged_them(
    thread: str, name: str, dtype: str, tp: int, gib: float, logged: int
) -> None:
    """Engines print GiB to two decimals, so the log fixes the tokens to 0.005 GiB and a block."""
    model = get_model(name)
    slack = 0.005 * GIB / model.kv_bytes_per_token(dtype, tp) + 2 * 16
    assert abs(kv_tokens(gib * GIB, model, dtype, tp) - logged) <= slack, thread


def test_one_size_to_the_byte() -> None:
    """llama.cpp#11446: DeepSeek-R1 at 32,768 tokens, 2196.00 MiB (1952 latent + 244 rope)."""
    assert get_model("deepseek-r1").kv_bytes(32_768, "fp16") == 2196 * 2**20


def test_the_larger_rank_overstates() -> None:
    """vllm#13061: the worker printed 8.69 GiB, the driver rank decided; taking one rank is 16 %."""
    one_rank = kv_tokens(8.69 * GIB, get_model("qwen2.5-14b"), "bf16", 2)
    assert one_rank == pytest.approx(94_918, abs=16)
    assert one_rank > 1.16 * 81_536


@pytest.mark.parametrize(
    ("non_torch", "left", "tokens"), [(0.34, 0.13, 1703), (0.43, 0.04, 524), (0.38, 0.09, 1179)]
)
def test_budget_of_three_ranks(non_torch: float, left: float, tokens: int) -> None:
    """vllm#16570, Qwen2.5-VL-72B on 4 x A100-40G: 37.41 GiB, weights 34.43, peak 2.51."""
    budget = budget_bytes(39.38 * GIB, 0.95, 34.43 * GIB, non_torch * GIB, 2.51 * GIB)
    assert budget / GIB == pytest.approx(left, abs=0.0051)
    assert kv_tokens(left * GIB, get_model("qwen2.5-72b"), tp=4) == pytest.approx(tokens, abs=16)


def test_blocks_of_a_published_run() -> None:
    """LLMServingSim's RTX 4090 run of vLLM 0.19: 2,588 blocks with a budget of 2,048 tokens."""
    gpu, model = get_gpu("rtx-4090"), get_model("llama-3.1-8b")
    peak = activation_bytes(model, max_num_batched_tokens=2048, max_num_seqs=256)
    blocks = kv_tokens(kv_budget(gpu, model, activation=peak), model) // 16
    assert blocks == pytest.approx(2588, rel=0.10)


def test_budget_is_what_is_left_per_gpu() -> None:
    gpu, model = get_gpu("h100"), get_model("llama-3.1-70b")
    left = kv_budget(gpu, model, 0.9, tp=4, activation=2e9, non_torch=1e9)
    assert left == pytest.approx(0.9 * gpu.mem_bytes - model.weight_bytes() / 4 - 3e9)
    assert kv_budget(gpu, model, 0.9, "fp8", tp=4, activation=2e9, non_torch=1e9) > left + 16e9
    blocks = default_kv_blocks(gpu, model, 4)
    assert default_kv_blocks(gpu, model, 4, kv_dtype="fp8") in (2 * blocks, 2 * blocks + 1)


def test_activation_peak_grows_with_the_step_budget() -> None:
    """vLLM users shrink max_num_batched_tokens to win KV; an estimate that ignores it misleads."""
    model = get_model("llama-3.1-8b")
    small, large = (activation_bytes(model, max_num_batched_tokens=n) for n in (2048, 8192))
    assert 0.3 * GIB < small < large < 2 * GIB
    assert activation_bytes(model, tp=2) < large


def test_a_model_that_does_not_fit_says_so() -> None:
    with pytest.raises(InputError) as caught:
        kv_budget(get_gpu("h100"), get_model("llama-3.1-405b"))
    text = str(caught.value)
    assert "llama-3.1-405b in bf16 on h100 with tp=1 needs 75" in text  # 756 GiB of weights
    assert "there are 72.00 GiB" in text and "use tp=16, quantised weights" in text
    assert "\n" not in text
    tight = replace(get_gpu("h100"), mem_bytes=int(16.44 * GIB / 0.9))
    with pytest.raises(
        InputError, match=r"leaves 0\.0\d GiB for KV, one block of 512 tokens needs"
    ):
        default_kv_blocks(tight, get_model("llama-3.1-8b"), block_size=512)
    with pytest.raises(InputError, match="; use quantised weights"):  # no tp helps
        kv_budget(replace(get_gpu("t4"), mem_bytes=6 * 10**8), get_model("llama-3.1-405b"))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g, m: kv_budget(g, m, 90), "utilization is 90"),
        (lambda g, m: kv_budget(g, m, 0.0), "utilization is 0"),
        (lambda g, m: kv_budget(g, m, tp=0), "tp is 0"),
        (lambda g, m: kv_tokens(1e9, m, block_size=0), "block_size is 0"),
        (lambda g, m: max_sequences(1e9, m, 0), "context is 0"),
        (lambda g, m: max_context(1e9, m, 0), "sequences is 0"),
    ],
)
def test_bad_numbers(call: Callable[..., object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        call(get_gpu("h100"), get_model("llama-3.1-8b"))


def test_no_room_is_zero_not_negative() -> None:
    model = get_model("llama-3.1-8b")
    assert kv_tokens(-5e9, model) == kv_tokens(1e3, model) == 0
    assert max_sequences(-5e9, model, 100) == 0
    assert max_context(1e3, model) == 0


def test_hybrid_models_hold_more_than_all_full_says() -> None:
    """vllm-metal#563: counting windowed layers as full cost Gemma 4 a factor of four."""
    model = get_model("gemma-4-31b")
    avail = 35_552 * model.kv_bytes_per_token()  # the budget behind its all-full figure
    assert kv_tokens(avail, model) == 35_552
    assert max_sequences(avail, model, 32_768) == 9
    assert kv_tokens(avail, model) // 32_768 == 1
    long = max_context(avail, model, 1)
    fixed = model.window * model.window_kv_bytes_per_token()
    assert long == (avail - fixed) // model.full_kv_bytes_per_token() // 16 * 16


def test_a_model_without_growing_cache_has_no_longest_context() -> None:
    windowed = replace(get_model("llama-3.1-8b"), full_layers=0, window_layers=32, window=4096)
    need = windowed.kv_bytes(4096)
    assert max_context(need, windowed) is None
    assert max_context(need - 1, windowed) == 4096 - 16
    linear = replace(get_model("qwen3.5-27b"), full_layers=0, linear_layers=64)
    assert max_context(linear.state_bytes(), linear) is None
    assert max_sequences(10.5 * linear.state_bytes(), linear, 10**9) == 10
    with pytest.raises(InputError, match="keeps no KV per token"):
        kv_tokens(1e9, linear)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(models())),
    st.integers(1, 200),
    st.floats(1e8, 1e11),
    st.sampled_from([1, 16, 64, 512]),
    st.sampled_from([1, 2, 8]),
)
def test_longest_context_and_largest_batch_agree(
    name: str, sequences: int, avail: float, block: int, tp: int
) -> None:
    """One asks for the context, the other for the batch; both must name the same edge."""
    model = get_model(name)
    longest = max_context(avail, model, sequences, "bf16", tp, block)
    assert longest is not None and longest % block == 0
    if longest:
        assert max_sequences(avail, model, longest, "bf16", tp, block) >= sequences
    assert max_sequences(avail, model, longest + 1, "bf16", tp, block) < sequences


@settings(deadline=None)
@given(st.floats(0, 1e11), st.sampled_from([1, 7, 16, 256]))
def test_tokens_come_in_whole_blocks(avail: float, block: int) -> None:
    model = get_model("qwen3-8b")
    tokens = kv_tokens(avail, model, block_size=block)
    assert tokens % block == 0
    assert tokens * 147_456 <= avail < (tokens + block) * 147_456
