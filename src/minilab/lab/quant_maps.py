"""quant_maps: where quantisation wins and where it does not, as experiments for regime maps.

Two questions. FP8 KV on or off, over context and concurrency: on a GPU without FP8 kernels the
cache holds twice as much but is read no faster (vllm#42058), so there its cost stays that of bf16.
INT4 weights against FP8 W8A8, over batch and prompt: fewer bytes against a faster product.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from minilab.facts.capacity import default_kv_blocks
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.sim.experiment import Experiment
from minilab.sim.regime_map import RegimeMap, regime_map

CONTEXTS = (1024, 4096, 8192, 16_384, 32_768)
USERS = (1, 4, 16, 64, 128)
ANSWER = 1024
"""Output tokens of the KV maps: answers long enough that decoding, not prefill, fills the time."""
BATCHES = (1, 4, 16, 64, 128, 256)
PROMPTS = (64, 512, 2048)

Side = Callable[[int, int], Experiment | None]


def kv_side(gpu: str, dtype: str, model: str = "llama-3.1-8b", output_tokens: int = ANSWER) -> Side:
    """(context, users) -> closed-loop experiment with the KV cache in ``dtype``.

    Requests come as fast as users finish; each brings a prompt of ``context`` tokens. None where
    not one request fits.
    """
    card, spec = get_gpu(gpu), get_model(model)
    blocks = default_kv_blocks(card, spec, kv_dtype=dtype)
    speed = dtype if reads_fp8(gpu) else "bf16"
    cost = json.dumps({"model": model, "gpu": gpu, "kv_dtype": speed})

    def side(context: int, users: int) -> Experiment | None:
        if blocks * 16 < context + output_tokens:
            return None
        base = Experiment(
            model=model, gpu=gpu, kv_dtype=dtype, kv_blocks=blocks, cost=cost, prefix_cache=False
        )
        return base.with_(
            trace="synthetic",
            prompt_tokens=context,
            output_tokens=output_tokens,
            concurrency=users,
            limit=max(8, 2 * users),
        )

    return side


def reads_fp8(gpu: str) -> bool:
    """Whether attention reads FP8 as such: tensor cores and kernels from capability 8.9 on."""
    return get_gpu(gpu).sm >= 89


def kv_limits(context: int, users: int) -> str:
    """SLO of a point: time to first token grows with the prompt, the pace of tokens does not."""
    return f"ttft={5 + context / 1000:g},tpot=0.1"


def kv_map(gpu: str, progress: bool = False) -> RegimeMap:
    """FP8 KV against bf16 KV on one GPU."""
    return regime_map(
        ("context (tokens)", CONTEXTS),
        ("users at a time", USERS),
        kv_side(gpu, "fp8"),
        kv_side(gpu, "bf16"),
        kv_limits,
        metric="goodput_per_gpu",
        margin=0.03,
        seeds=(0,),
        names=("FP8 KV", "bf16 KV"),
        progress=progress,
    )


def weight_side(gpu: str, dtype: str, model: str = "llama-3.1-8b") -> Side:
    """(batch, prompt) -> closed-loop experiment with the weights in ``dtype``."""

    def side(batch: int, prompt: int) -> Experiment | None:
        base = Experiment(model=model, gpu=gpu, weight_dtype=dtype, prefix_cache=False)
        return base.with_(
            trace="synthetic",
            prompt_tokens=prompt,
            output_tokens=128,
            concurrency=batch,
            limit=max(8, 3 * batch),
        )

    return side


def weight_map(gpu: str = "h100", progress: bool = False) -> RegimeMap:
    """INT4 (weight-only, groups of 128) against FP8 W8A8."""
    return regime_map(
        ("users at a time", BATCHES),
        ("prompt (tokens)", PROMPTS),
        weight_side(gpu, "int4"),
        weight_side(gpu, "fp8"),
        "tpot=0.1",
        metric="goodput_per_gpu",
        margin=0.02,
        seeds=(0,),
        names=("INT4 weights", "FP8 W8A8"),
        progress=progress,
    )
