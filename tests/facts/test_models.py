"""models.json and the arithmetic of ModelSpec, held to published counts and engine logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts.errors import InputError
from minilab.facts.models import ModelSpec, dtype_bytes, get_model, models

GIB = 2**30
NAMES = sorted(models())

# FACTS 2.1: bytes per token in bf16 (LMCache's modelconfig.json, DeepSeek configs, engine logs).
KV_BYTES = {
    "llama-2-7b": 524_288,
    "llama-2-13b": 819_200,
    "llama-2-70b": 327_680,
    "llama-3-70b": 327_680,
    "llama-3.1-8b": 131_072,
    "llama-3.1-405b": 516_096,
    "llama-3.2-1b": 32_768,
    "llama-3.2-3b": 114_688,
    "mistral-7b": 131_072,
    "mixtral-8x7b": 131_072,
    "gpt-oss-20b": 49_152,
    "gpt-oss-120b": 73_728,
    "deepseek-v2-lite": 31_104,
    "deepseek-v2": 69_120,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
    "gemma-3-27b": 507_904,
    "gemma-4-31b": 901_120,
    "qwen2.5-7b": 57_344,
    "qwen2.5-14b": 196_608,
    "qwen2.5-32b": 262_144,
    "qwen3-32b": 262_144,
    "qwen2.5-72b": 327_680,
    "qwen3-0.6b": 114_688,
    "qwen3-1.7b": 114_688,
    "qwen3-4b": 147_456,
    "qwen3-8b": 147_456,
    "qwen3-14b": 163_840,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "glm-4.5": 376_832,
    "glm-4.6": 376_832,
    "smollm2-135m": 23_040,
}

# Published parameter counts: model cards and technical reports.
PARAMS = {
    "llama-2-7b": 6.738e9,
    "llama-2-13b": 13.016e9,
    "llama-2-70b": 68.98e9,
    "llama-3-8b": 8.03e9,
    "llama-3.1-8b": 8.03e9,
    "llama-3.1-70b": 70.6e9,
    "llama-3.1-405b": 405.9e9,
    "llama-3.2-1b": 1.236e9,
    "llama-3.2-3b": 3.213e9,
    "mistral-7b": 7.248e9,
    "mixtral-8x7b": 46.7e9,
    "mixtral-8x22b": 140.6e9,
    "deepseek-v2": 235.7e9,
    "deepseek-v2-lite": 15.7e9,
    "deepseek-v3": 671e9,
    "qwen2.5-7b": 7.616e9,
    "qwen2.5-14b": 14.77e9,
    "qwen2.5-32b": 32.76e9,
    "qwen2.5-72b": 72.71e9,
    "qwen3-0.6b": 0.596e9,
    "qwen3-4b": 4.02e9,
    "qwen3-8b": 8.19e9,
    "qwen3-14b": 14.77e9,
    "qwen3-32b": 32.76e9,
    "qwen3-30b-a3b": 30.5e9,
    "qwen3-235b-a22b": 235e9,
    "qwen3-coder-480b-a35b": 480e9,
    "gpt-oss-20b": 20.91e9,
    "gpt-oss-120b": 116.83e9,
    "gemma-3-27b": 27.0e9,
    "llama-4-maverick": 400.7e9,
    "llama-4-scout": 107.8e9,
    "opt-13b": 12.85e9,
    "opt-66b": 65.7e9,
}

# Active per token. DeepSeek's and OpenAI's own counts leave the embedding table out.
ACTIVE = {"mixtral-8x7b": 12.9e9, "qwen3-30b-a3b": 3.3e9, "qwen3-235b-a22b": 22e9}
ACTIVE_WITHOUT_TABLE = {"deepseek-v3": 36.7e9, "gpt-oss-20b": 3.61e9, "gpt-oss-120b": 5.13e9}


@pytest.mark.parametrize(("name", "expected"), KV_BYTES.items())
def test_kv_bytes_per_token_is_facts_table(name: str, expected: int) -> None:
    model = get_model(name)
    assert model.kv_bytes_per_token() == expected
    assert model.kv_bytes_per_token("fp8") * 2 == expected


@pytest.mark.parametrize(("name", "expected"), PARAMS.items())
def test_parameter_counts_are_the_published_ones(name: str, expected: float) -> None:
    assert get_model(name).params_total == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("name", "expected"), ACTIVE.items())
def test_active_parameters(name: str, expected: float) -> None:
    """Top-k experts only; counting all of them would price a MoE as if it were dense."""
    assert get_model(name).params_active == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("name", "expected"), ACTIVE_WITHOUT_TABLE.items())
def test_active_parameters_without_the_look_up_table(name: str, expected: float) -> None:
    model = get_model(name)
    assert model.params_active - model.embedding_params == pytest.approx(expected, rel=0.01)


def test_one_count_to_the_last_parameter() -> None:
    """Norms, tying and head sizes all have to be right: 134,515,008 in the GGUF of SmolLM2."""
    assert get_model("smollm2-135m").params_total == 134_515_008


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_checkpoint_size_with_only_the_experts_quantised(name: str, gib: float) -> None:
    """Sizes in the gpt-oss model card; MXFP4 for everything would give a quarter less."""
    assert get_model(name).weight_bytes("native") / GIB == pytest.approx(gib, rel=0.01)


def test_weight_bytes_by_format() -> None:
    model = get_model("llama-3.1-8b")
    assert model.weight_bytes() == model.weight_bytes("bf16") == 2 * model.params_total
    assert model.weight_bytes("fp32") == 4 * model.params_total
    tables = 2 * 128256 * 4096
    assert model.weight_bytes("fp8") == pytest.approx(tables * 2 + 6.98e9, rel=1e-3)
    assert get_model("deepseek-v3").weight_bytes() < 0.55 * get_model("deepseek-v3").weight_bytes(
        "bf16"
    )
    with pytest.raises(InputError, match="unknown dtype 'fp7'; did you mean fp"):
        model.weight_bytes("fp7")
    assert dtype_bytes("mxfp4") == 4.25 / 8


def test_flops_per_token_is_two_per_matrix_parameter() -> None:
    model = get_model("llama-3.1-8b")
    look_up = 128256 * 4096
    norms = (2 * 32 + 1) * 4096
    assert model.flops_per_token == 2 * (model.params_total - look_up - norms)
    moe = get_model("mixtral-8x7b")
    assert moe.flops_per_token == pytest.approx(2 * 12.75e9, rel=0.01)
    tied = get_model("llama-3.2-1b")  # the table is the head: multiplied, not only looked up
    assert tied.flops_per_token == pytest.approx(2 * tied.params_total, rel=1e-3)


def test_pair_flops() -> None:
    assert get_model("llama-3.1-8b").pair_flops == 4 * 32 * 128 * 32
    assert get_model("deepseek-v3").pair_flops == 2 * 128 * (128 + 64 + 128) * 61
    assert get_model("gpt-oss-20b").pair_flops == 4 * 64 * 64 * 12  # full layers only


def test_tensor_parallelism_splits_heads_but_never_below_one() -> None:
    model = get_model("qwen3-30b-a3b")  # 4 KV heads
    per_head = model.kv_bytes_per_token() // 4
    assert [model.kv_bytes_per_token(tp=tp) // per_head for tp in (1, 2, 3, 4, 8)] == [
        4,
        2,
        2,
        1,
        1,
    ]


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2-lite", "deepseek-v4-flash"])
def test_a_latent_is_replicated_not_split(name: str) -> None:
    """vllm#51454: TP8 gives an eighth of the KV that DP8 gives."""
    model = get_model(name)
    assert model.kv_bytes_per_token(tp=8) == model.kv_bytes_per_token(tp=1)


def test_flashmla_layout() -> None:
    """FlashMLA README: 656 bytes per token and layer, 40,016 over 61 layers."""
    assert get_model("deepseek-v3.2").kv_bytes_per_token("fp8_ds_mla") == 40_016
    with pytest.raises(InputError, match="needs an MLA model"):
        get_model("llama-3.1-8b").kv_bytes_per_token("fp8_ds_mla")
    with pytest.raises(InputError, match="unknown KV dtype 'int4'"):
        get_model("llama-3.1-8b").kv_bytes_per_token("int4")


def test_hybrid_cache_of_gpt_oss() -> None:
    """hf-mem PR#70: 32 requests of 8,192 tokens, 12.00 GiB all-full, 6.09 GiB with windows."""
    model = get_model("gpt-oss-20b")
    assert 32 * 8192 * model.kv_bytes_per_token() / GIB == 12.0
    assert 32 * model.kv_bytes(8192) / GIB == pytest.approx(6.09, abs=0.005)
    # AWS Neuron's documentation prints 9.66 GB for 131,072 tokens, all layers full.
    large = get_model("gpt-oss-120b")
    assert 131_072 * large.kv_bytes_per_token() == pytest.approx(9.66e9, abs=5e6)
    assert large.kv_bytes(131_072) == pytest.approx(9.66e9 / 2, rel=0.01)


@pytest.mark.parametrize(
    ("tokens", "full", "hybrid"), [(32 * 1024, 15.5, 2.91), (128 * 1024, 62.0, 10.41)]
)
def test_hybrid_cache_of_gemma(tokens: int, full: float, hybrid: float) -> None:
    model = get_model("gemma-3-27b")
    assert tokens * model.kv_bytes_per_token() / GIB == full
    assert model.kv_bytes(tokens) / GIB == pytest.approx(hybrid, abs=0.005)


def test_linear_layers_keep_a_state_and_no_kv() -> None:
    model = get_model("qwen3.5-27b")
    assert model.kv_bytes_per_token() == 16 * 2 * 4 * 256 * 2  # 16 of 64 layers
    assert model.kv_bytes(0) == model.state_bytes() > 48 * 48 * 128 * 128 * 4
    assert get_model("llama-3.1-8b").state_bytes() == 0


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 300_000), st.integers(1, 5_000), st.integers(1, 8))
def test_kv_bytes_only_grow_and_stay_below_all_full(
    name: str, tokens: int, more: int, tp: int
) -> None:
    model = get_model(name)
    held = model.kv_bytes(tokens, tp=tp)
    assert held <= model.kv_bytes(tokens + more, tp=tp)
    slack = 200_000 if model.strides else 0  # a last, partly filled compressed entry per layer
    assert held <= tokens * model.kv_bytes_per_token(tp=tp) + model.state_bytes(tp) + slack
    if tokens > model.window and not model.strides:
        grown = model.kv_bytes(tokens + more, tp=tp) - held
        assert grown == more * model.full_kv_bytes_per_token(tp=tp)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_is_consistent(name: str) -> None:
    model = get_model(name)
    assert model.name == name == name.lower() and " " not in name and "_" not in name
    assert len(model.source) > 40 and "/" in model.hub
    assert model.full_layers + model.window_layers + model.linear_layers == model.layers
    assert bool(model.window) == bool(model.window_layers)
    assert 0 <= model.moe_layers <= model.layers
    assert bool(model.experts) == bool(model.moe_layers) and model.top_k <= model.experts
    assert 0 < model.params_active <= model.params_total
    assert (model.params_active < model.params_total) == bool(model.experts)
    assert model.max_len >= 2048
    printed = json.loads(json.dumps(model.to_dict()))
    row = {**printed["geometry"]}
    row["strides"] = tuple((s, n) for s, n in row.get("strides", ()))
    assert ModelSpec(**row) == model


def test_the_table_agrees_with_the_public_configs(data_folder: Callable[[str], Path]) -> None:
    """Every config file has its row, and reading the file gives that row."""
    files = sorted((data_folder("model-configs")).glob("*_config.json"))
    by_hub = {model.hub: model for model in models().values()}
    assert len(files) >= 40
    for file in files:
        hub = file.name.removesuffix("_config.json").replace("--", "/")
        shipped = by_hub[hub]
        read = ModelSpec.from_file(file, shipped.name)
        if hub == "nvidia/Llama-3.1-70B-Instruct-FP8":  # its fp8 is declared in another file
            read = replace(read, dtype="fp8", expert_dtype="fp8")
        same = {"hub": shipped.hub, "note": shipped.note, "source": shipped.source}
        assert replace(read, **same) == shipped, hub
