"""What a recommendation is called in practice: launch flags, and the load that would refute it.

Flags looked at: vLLM 0.32, SGLang 0.5.23.
"""

from __future__ import annotations

from typing import Any

VLLM, SGLANG = "0.32", "0.5.23"

_VLLM = {
    "prefix_cache": "--enable-prefix-caching",
    "fp8_kv": "--kv-cache-dtype fp8",
    "w8a8": "--quantization fp8",
    "int4": "(a checkpoint in AWQ or GPTQ format)",
    "kv_tier": "--kv-offloading-size GIB",
    "spec_decode": """--speculative-config '{"method": "eagle3", "num_speculative_tokens": 4}'""",
    "mtp": """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""",
    "pd_split": "--kv-transfer-config "
    """'{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'""",
}
_SGLANG = {
    "fp8_kv": "--kv-cache-dtype fp8_e4m3",
    "w8a8": "--quantization fp8",
    "int4": "(a checkpoint in AWQ or GPTQ format)",
    "kv_tier": "--enable-hierarchical-cache",
    "spec_decode": "--speculative-algorithm EAGLE3 --speculative-num-steps 4",
    "mtp": "--speculative-algorithm EAGLE --speculative-num-steps 1",
    "pd_split": "--disaggregation-mode prefill (and decode)",
}


def launch(settings: Any, told: dict[str, Any]) -> dict[str, str]:
    """Command lines of vLLM and SGLang for a report of ``levers.report`` that fits.

    They name what the recommendation changes; the model's path is the reader's.
    """
    levers = [row[0] for row in told["stack"]]
    budget = told["stack_name"].partition("/")[0].partition("-")[2] or "8192"
    tp = int(told["recommended"]["layout"].rpartition("tp")[2])
    vllm = ["vllm serve MODEL", f"--tensor-parallel-size {tp}"]
    sglang = ["python -m sglang.launch_server --model-path MODEL", f"--tp-size {tp}"]
    if "expert_parallel" in levers:  # a rank of attention on each GPU, or nothing is gained
        vllm[-1] = f"--tensor-parallel-size 1 --data-parallel-size {tp} --enable-expert-parallel"
        sglang += [f"--enable-dp-attention --dp-size {tp} --ep-size {tp}"]
        sglang += ["--moe-a2a-backend deepep"]
    if "chunked_prefill" in levers:
        vllm.append(f"--max-num-batched-tokens {budget}")
        sglang.append(f"--chunked-prefill-size {budget}")
    if "max_model_len" in levers:
        tokens = int(settings.prompt * (1 + 2 * settings.cv) + settings.output)
        vllm.append(f"--max-model-len {tokens}")
        sglang.append(f"--context-length {tokens}")
    vllm += [_VLLM[lever] for lever in levers if lever in _VLLM]
    sglang += [_SGLANG[lever].format(tp=tp) for lever in levers if lever in _SGLANG]
    return {f"vLLM {VLLM}": " ".join(vllm), f"SGLang {SGLANG}": " ".join(sglang)}


def refute(settings: Any) -> str:
    """The load that would show the recommendation wrong."""
    return (
        "minilab load --url http://127.0.0.1:8000 --model MODEL --synthetic "
        f"--rate {settings.rate:g} --prompt-tokens {settings.prompt:.0f} "
        f"--output-tokens {settings.output:.0f} "
        f"--slo ttft={settings.ttft:g},itl={settings.itl:g}"
    )
