"""Start-up logs in the wordings of several vLLM versions; numbers as public threads have them."""

from __future__ import annotations

import pytest

from minilab.facts.capacity_log import parse_startup_log, read_startup_log
from minilab.facts.errors import InputError

V0 = """
INFO 12-02 llm_engine.py:249] Initializing an LLM engine (v0.6.4) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.float16, max_seq_len=20000, \
tensor_parallel_size=1, pipeline_parallel_size=1, kv_cache_dtype=auto
INFO model_runner.py] Loading model weights took 14.9888 GB
INFO worker.py] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB \
peak_torch_memory=17.06GiB memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB \
kv_cache_size=3.81GiB gpu_memory_utilization=0.90
INFO gpu_executor.py] # GPU blocks: 1952, # CPU blocks: 2048
INFO gpu_executor.py] Maximum concurrency for 20000 tokens per request: 1.56x
""".strip().splitlines()

V0_RANKS = """
(VllmWorkerProcess pid=1786) INFO model_runner.py:1115] Loading model weights took 13.9476 GB
INFO model_runner.py:1115] Loading model weights took 13.9476 GB
(VllmWorkerProcess pid=1786) INFO worker.py] the current vLLM instance can use total_gpu_memory \
(23.55GiB) x gpu_memory_utilization (0.98) = 23.08GiB; model weights take 13.95GiB; \
non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 0.19GiB; the rest of the \
memory reserved for KV Cache is 8.69GiB.
INFO worker.py] the current vLLM instance can use total_gpu_memory (23.55GiB) x \
gpu_memory_utilization (0.98) = 23.08GiB; model weights take 13.95GiB; non_torch_memory takes \
0.30GiB; PyTorch activation peak memory takes 1.37GiB; the rest of the memory reserved for KV \
Cache is 7.46GiB.
ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can \
be stored in KV cache (81536). Try increasing `gpu_memory_utilization`
""".strip().splitlines()

V1 = """
(EngineCore_DP0 pid=9) INFO core.py] Initializing a V1 LLM engine (v0.19.0) with config: \
model='openai/gpt-oss-20b', max_seq_len=131072, tensor_parallel_size=2, kv_cache_dtype=fp8
(Worker_TP0 pid=10) INFO gpu_model_runner.py] Model loading took 7.1 GiB memory and 9.2 seconds
(Worker_TP1 pid=11) INFO gpu_model_runner.py] Model loading took 7.1 GiB memory and 9.3 seconds
(Worker_TP0 pid=10) INFO gpu_worker.py:298] Available KV cache memory: 61.20 GiB
(Worker_TP1 pid=11) INFO gpu_worker.py:298] Available KV cache memory: 61.02 GiB
(EngineCore_DP0 pid=9) INFO kv_cache_utils.py] GPU KV cache size: 5,331,968 tokens, Maximum \
concurrency for 131,072 tokens per request: 40.68x
(Worker_TP0 pid=10) INFO gpu_model_runner.py] Graph capturing finished in 7 secs, took 0.61 GiB
""".strip().splitlines()


def test_v0_budget_adds_up() -> None:
    """vllm#10517: 23.58 * 0.90 - 14.99 - 2.07 - 0.35 = 3.81; the peak is the torch peak less the
    weights."""
    log = parse_startup_log(V0)
    rank = log.ranks[0]
    assert rank.activation == pytest.approx(17.06 - 14.9888)
    assert rank.computed == pytest.approx(3.81, abs=0.01)
    assert (log.tokens, log.max_len, log.concurrency) == (31_232, 20_000, 1.56)
    assert log.settings["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert log.settings["version"] == "0.6.4"
    assert "14.99 weights" in log.explain()[0] and "-> 3.81 GiB for KV" in log.explain()[0]
    assert log.as_dict()["gib_per_1000_tokens"] == pytest.approx(0.122, abs=0.001)


def test_ranks_that_differ_and_a_refusal() -> None:
    """vllm#13061: reading the first line alone gives 8.69 GiB, and a riddle."""
    log = parse_startup_log(V0_RANKS)
    assert log.available == 7.46 and log.tokens == 81_536
    assert log.refused and log.max_len == 131_072
    text = " ".join(log.explain())
    assert "7.46 to 8.69 GiB" in text and "refused max-len 131,072" in text


def test_v1_wording() -> None:
    log = parse_startup_log(V1)
    assert [rank.name for rank in log.ranks] == ["rank 0", "rank 1"]
    assert log.available == 61.02
    assert (log.tokens, log.max_len, log.concurrency) == (5_331_968, 131_072, 40.68)
    assert log.settings["kv_dtype"] == "fp8" and log.settings["tp"] == "2"
    assert "CUDA graphs then took 0.61 GiB" in log.explain()[0]


def test_a_length_that_did_not_fit() -> None:
    line = (
        "ValueError: To serve at least one request with the models's max seq len (262144), "
        "(24.0 GiB KV cache is needed, which is larger than the available KV cache memory "
        "(3.18 GiB). Based on the available memory, the estimated maximum model length is 34736."
    )
    log = parse_startup_log([line])
    assert log.refused and log.estimated_len == 34_736 and log.available == 3.18
    assert log.ranks[0].gib["needed"] == 24.0


def test_another_file_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "other.log"
    path.write_text("INFO: Started server process\n")
    with pytest.raises(InputError, match="no line about KV memory"):
        read_startup_log(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_startup_log(tmp_path / "missing.log")
