"""The command lines of vLLM and SGLang that realise a deployment, and the versions looked at."""

from __future__ import annotations

from minilab.facts.capacity_plan import Deployment
from minilab.facts.capacity_ranks import ranks, smallest

VERSIONS = {
    "vllm": "docs of 0.32.0 (engine arguments, cache config), read 2026-11-29",
    "sglang": "docs/advanced_features/server_arguments.md at b36e8e1 (0.5), read 2026-11-29",
}
"""Where the flags were looked at."""

_VLLM_KV = {
    "bf16": "auto", "fp16": "auto", "fp32": "auto", "fp8": "fp8", "fp8_ds_mla": "fp8_ds_mla",
    "fp8_per_token_head": "fp8_per_token_head", "int8_per_token_head": "int8_per_token_head",
    "int4_per_token_head": "int4_per_token_head", "nvfp4": "nvfp4",
}  # fmt: skip
_SGLANG_KV = {"bf16": "auto", "fp16": "auto", "fp8": "fp8_e4m3", "fp8_ds_mla": "fp8_e4m3"}


def launch_flags(
    deployment: Deployment,
    max_len: int | None,
    kv_bytes: float | None = None,
    tokens: int | None = None,
) -> dict[str, dict[str, str | None]]:
    """{engine: {version, command}}; command None where the engine has no such KV format.

    ``kv_bytes`` and ``tokens`` fix the pool where the memory for KV was given.
    """
    d = deployment
    return {
        "vllm": {"version": VERSIONS["vllm"], "command": _vllm(d, max_len, kv_bytes)},
        "sglang": {"version": VERSIONS["sglang"], "command": _sglang(d, max_len, tokens)},
    }


def _vllm(d: Deployment, max_len: int | None, kv_bytes: float | None) -> str | None:
    if d.kv_dtype not in _VLLM_KV:
        return None
    words = [
        f"vllm serve {d.model.hub or d.model.name}",
        f"--kv-cache-dtype {_VLLM_KV[d.kv_dtype]}",
    ]
    if d.available is not None and kv_bytes is not None:
        words.append(f"--kv-cache-memory-bytes {int(kv_bytes)}")
    else:
        words.append(f"--gpu-memory-utilization {d.utilization:g}")
    if max_len:
        words.append(f"--max-model-len {max_len}")
    words += _when(d.attention_tp > 1, f"--tensor-parallel-size {d.attention_tp}")
    words += _when(d.pp > 1, f"--pipeline-parallel-size {d.pp}")
    words += _when(d.dp > 1, f"--data-parallel-size {d.dp}")
    words += _when(d.dp > 1 and d.model.moe_layers > 0, "--enable-expert-parallel")
    words += _when(d.block_size != 16, f"--block-size {d.block_size}")
    words.append(f"--max-num-batched-tokens {d.max_num_batched_tokens}")
    words.append(f"--max-num-seqs {d.max_num_seqs}")
    return " ".join(words)


def _sglang(d: Deployment, max_len: int | None, tokens: int | None) -> str | None:
    if d.kv_dtype not in _SGLANG_KV:
        return None
    words = [
        f"python -m sglang.launch_server --model-path {d.model.hub or d.model.name}",
        f"--kv-cache-dtype {_SGLANG_KV[d.kv_dtype]}",
    ]
    # SGLang's share covers weights and KV alone: what runs outside them is kept off it.
    if d.available is None:
        words.append(f"--mem-fraction-static {_static_share(d):.2f}")
    elif tokens:
        words.append(f"--max-total-tokens {tokens}")
    if max_len:
        words.append(f"--context-length {max_len}")
    words += _when(d.tp > 1, f"--tp-size {d.tp}")
    words += _when(d.pp > 1, f"--pp-size {d.pp}")
    words += _when(d.dp > 1, f"--dp-size {d.dp} --enable-dp-attention")
    words.append(f"--chunked-prefill-size {d.max_num_batched_tokens}")
    words.append(f"--max-running-requests {d.max_num_seqs}")
    return " ".join(words)


def _static_share(d: Deployment) -> float:
    """Weights and KV as a share of the GPU's memory: what the budget leaves after the rest."""
    assert d.gpu is not None
    rank = smallest(ranks(d), d.block_size)
    weights = -sum(size for name, size, _ in rank.terms if name.endswith("weights"))
    return (rank.available + weights) / d.gpu.mem_bytes


def _when(wanted: bool, words: str) -> list[str]:
    return [words] if wanted else []
