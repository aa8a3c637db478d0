"""commands: the launch lines of vLLM and SGLang, as ``facts.capacity_flags`` writes them."""

from typing import Any

VLLM_KV = {"bf16": "auto", "fp8": "fp8"}
SGLANG_KV = {"bf16": "auto", "fp8": "fp8_e4m3"}


def vllm(name: str, asked: Any) -> str:
    """vLLM's."""
    words = [
        f"vllm serve {name}",
        f"--kv-cache-dtype {VLLM_KV[asked.kv]}",
        f"--gpu-memory-utilization {plain(asked.utilization)}",
        f"--max-model-len {asked.length}",
    ]
    if asked.tp > 1:
        words.append(f"--tensor-parallel-size {asked.tp}")
    words.append(f"--max-num-batched-tokens {asked.batched}")
    words.append(f"--max-num-seqs {asked.sequences}")
    return " ".join(words)


def sglang(name: str, asked: Any, budget: Any) -> str:
    """SGLang's; its share covers weights and KV alone, so what runs outside is kept off it."""
    share = (budget.left + budget.weights) / budget.memory
    words = [
        f"python -m sglang.launch_server --model-path {name}",
        f"--kv-cache-dtype {SGLANG_KV[asked.kv]}",
        f"--mem-fraction-static {share:.2f}",
        f"--context-length {asked.length}",
    ]
    if asked.tp > 1:
        words.append(f"--tp-size {asked.tp}")
    words.append(f"--chunked-prefill-size {asked.batched}")
    words.append(f"--max-running-requests {asked.sequences}")
    return " ".join(words)


def plain(value: float) -> str:
    """A share without trailing zeros."""
    text = f"{value:.6f}".rstrip("0")
    return text[:-1] if text.endswith(".") else text
