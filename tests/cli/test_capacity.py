"""``capacity``: the options and keys that scripts rely on, and refusals in one line."""

from __future__ import annotations

import json

import pytest

GIB = 2**30


def test_the_call_of_the_readme(cli):
    """vllm#10517: 3.81 GiB held 31,232 tokens of Llama-3.1-8B, 1.56 requests of 20,000."""
    words = ("--model", "llama-3.1-8b", "--kv-dtype", "fp16", "--available-gib", 3.81)
    found = cli("capacity", *words, "--max-len", 20_000, "--json").json
    assert found["kv_bytes_per_token"] == 131_072
    assert abs(found["tokens"] - 31_232) <= 0.005 * GIB / 131_072 + 16
    assert found["tokens"] % 16 == 0 == found["max_len"] % 16
    assert found["max_concurrency"] == pytest.approx(1.56, abs=0.005)
    assert found["max_len"] == found["tokens"]
    assert found["range"] is None
    assert [term["name"] for term in found["terms"]] == ["available"]
    assert "--max-model-len 20000" in found["flags"]["vllm"]["command"]
    assert "0.32" in found["flags"]["vllm"]["version"]


def test_a_budget_has_terms_and_a_range(cli):
    words = ("capacity", "--model", "qwen3-8b", "--gpu", "h100", "--kv-dtype", "fp8", "--json")
    found = cli(*words).json
    assert sum(term["bytes"] for term in found["terms"]) == pytest.approx(found["available_bytes"])
    low, high = found["range"]["tokens"]
    assert low < found["tokens"] < high
    exact = cli(*words, "--activation-gib", 1.5, "--weights-gib", 15.3).json
    assert exact["range"] is None
    assert exact["terms"][2]["gib"] == pytest.approx(-15.3)
    sglang = found["flags"]["sglang"]["command"]
    assert "--kv-cache-dtype fp8_e4m3" in sglang and "--mem-fraction-static 0.8" in sglang


def test_own_config_parallelism_and_concurrency(cli, data_folder):
    """min over the ranks' sizes, heads split over tp, length at a concurrency."""
    config = data_folder("model-configs") / "Qwen--Qwen3-235B-A22B_config.json"
    words = ("--config", config, "--tp", 4, "--available-gib", "8.11,8.02,8.11,8.11")
    found = cli("capacity", *words, "--concurrency", 4, "--json").json
    assert found["kv_bytes_per_token"] == 48_128
    assert abs(found["tokens"] - 178_880) <= 0.005 * GIB / 48_128 + 16
    assert found["deciding"]["rank"] == 1
    assert found["max_len"] == found["tokens"] // 16 // 4 * 16


def test_text_says_why(cli):
    words = ("--model", "gemma-3-27b", "--gpu", "h100", "--tp", 2)
    text = cli("capacity", *words).out
    assert "fixed + " in text and "minimum over ranks" in text and "activation peak" in text


def test_log_fit_and_users(cli, tmp_path):
    path = tmp_path / "vllm.log"
    path.write_text(
        "Available KV cache memory: 11.47 GiB\nGPU KV cache size: 83,488 tokens\n"
        "Maximum concurrency for 32,768 tokens per request: 2.55x\n"
    )
    assert cli("capacity", "--log", path, "--json").json["tokens"] == 83_488
    assert "11.47 GiB" in cli("capacity", "--log", path).out
    both = cli("capacity", "--log", path, "--model", "qwen3-4b", "--json").json
    assert abs(both["tokens"] - both["log"]["tokens"]) <= 0.005 * GIB / 147_456 + 16
    fitted = cli("capacity", "--fit", "5.44:13528,6.66:30000", "--available-gib", 6, "--json").json
    assert fitted["slope_bytes_per_token"] == pytest.approx(79_500, rel=0.001)
    assert 13_528 < fitted["max_len"] < 30_000
    assert "GiB a sequence" in cli("capacity", "--fit", "5.44:13528,6.66:30000").out
    words = ("--model", "llama-3.1-8b", "--gpu", "h100", "--users", 200, "--slo", "tpot=30ms")
    plan = cli("capacity", *words, "--max-len", 4096, "--json").json
    assert plan["gpus"] == plan["instances"] * plan["tp"] >= 200 / plan["per_instance"]
    assert "users" in cli("capacity", *words).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no model; give --model"),
        (("--model", "llama-3.1-8b"), "neither --available-gib nor --gpu"),
        (("--model", "llama-3.1-8b", "--gpu-gib", 24, "--available-gib", 1), "give --gpu too"),
        (("--model", "llama-3.1-405b", "--gpu", "h100"), "before any KV"),
        (("--model", "qwen3-8b", "--available-gib", 1, "--kv-dtype", "fp9"), "unknown KV dtype"),
        (("--model", "qwen3-8b", "--available-gib", 1, "--slo", "ttft=1"), "goes with --users"),
        (("--model", "qwen3-8b", "--available-gib", 1, "--kv-dtype", "fp8_ds_mla"), "MLA model"),
        (("--fit", "5.44"), "write GIB:TOKENS"),
        (("--log", "nowhere.log"), "cannot be read"),
    ],
    ids=["model", "memory", "gpu-gib", "full", "dtype", "slo", "mla", "fit", "log"],
)
def test_refusals(refused, words, says):
    assert says in refused("capacity", *words)


def test_json_is_json(cli):
    """Windows and states give None where a length has no limit; never NaN."""
    words = ("--model", "qwen3.5-27b", "--available-gib", 20, "--max-len", 32_768, "--json")
    found = json.loads(cli("capacity", *words).out)
    assert found["vllm_pool"]["groups"][0]["block_size"] == 784
    assert found["sequence"]["fixed_bytes"] > 0
