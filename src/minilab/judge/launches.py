"""How the published benchmarks were launched: what a row of the table does not say about itself.

Read from the public launch scripts of InferenceMAX, now InferenceX (github.com/SemiAnalysisAI/
InferenceX, benchmarks/single_node, read 2026-11-29), and, for the runs without a script, what
fits: stated with each rule. A wrong rule shows as a KV pool that fills in the model and not in the
measurement, or the other way round.
"""

from __future__ import annotations

from typing import NamedTuple

from minilab.facts.hardware import GPU
from minilab.facts.models import ModelSpec


class Launch(NamedTuple):
    """Flags of one launch, in vLLM's words.

    ``budget``: max_num_batched_tokens. ``utilization``: gpu_memory_utilization. ``fused``: the
    all-reduces are fused with the norms that follow. ``exact``: the client sends prompts and asks
    for outputs of exactly the nominal length, else uniform in 0.8 to 1 of it.
    """

    kv_dtype: str = "bf16"
    budget: int = 8192
    utilization: float = 0.9
    fused: bool = False
    exact: bool = False


def launch_of(
    source: str, engine: str, version: str, spec: ModelSpec, gpu: GPU, precision: str, isl: int
) -> Launch:
    """The launch behind a row; ``source`` is its ``silicon_data_source``."""
    if "aic-auto-gap" in source:  # no script is public; exact lengths and this budget fit
        return Launch(budget=2048, exact=True)
    if engine != "vllm":
        return Launch(kv_dtype="fp8" if precision == "fp4" else "bf16")
    blackwell = gpu.sm >= 100
    if spec.name == "gpt-oss-120b":
        return Launch(kv_dtype="fp8" if blackwell else "bf16", fused=True)
    if spec.name == "llama-3.1-70b":
        return Launch(kv_dtype="fp8" if blackwell else "bf16", fused=blackwell)
    if spec.name == "minimax-m2.5":
        return _minimax(version, blackwell, isl)
    if spec.name == "kimi-k2.5":
        # The NVFP4 checkpoint brings its KV format along; the int4 scripts raise utilization.
        if precision == "fp4":
            return Launch(kv_dtype="fp8", fused=True)
        return Launch(utilization=0.97 if blackwell else 0.95)
    return Launch()


def _minimax(version: str, blackwell: bool, isl: int) -> Launch:
    """The script was tuned between two releases: first defaults, later fp8 KV and twice ISL."""
    if not blackwell:
        return Launch()
    if version.startswith("0.19"):
        return Launch(kv_dtype="fp8", budget=2 * isl)
    return Launch(utilization=0.95)
