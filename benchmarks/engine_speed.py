"""How fast the engine decodes on a CPU, and where the time goes.

SmolLM2-135M in fp32, 16 requests at once of 256 prompt and 128 output tokens: the case for which
vLLM's CPU build was measured on such a machine at 147 tokens/s, and a naive loop over sequences at
84. A second run under the profiler says which share is matrices, attention, and Python.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from typing import Any

import common

TARGET_TOKENS_PER_SECOND = 0.8 * 147
TARGET_OVERHEAD = 0.05
NUM_REQUESTS, PROMPT, OUTPUT = 16, 256, 128


def engine(checkpoint: Any, batched_tokens: int) -> Any:
    """A fresh engine with room for all requests."""
    from minilab.core.config import SchedulerConfig
    from minilab.engine.llm import LLM

    blocks = NUM_REQUESTS * -(-(PROMPT + OUTPUT) // 16)
    limits = SchedulerConfig(
        blocks, 16, max_num_batched_tokens=batched_tokens, max_num_seqs=NUM_REQUESTS
    )
    return LLM(*checkpoint, limits)


def prompts(vocabulary: int, seed: int) -> list[list[int]]:
    """Random prompts: the speed does not depend on what they say."""
    rng = random.Random(seed)
    return [rng.choices(range(vocabulary), k=PROMPT) for _ in range(NUM_REQUESTS)]


def run(llm: Any, asked: list[list[int]]) -> dict[str, float]:
    """One workload from first prompt to last token; times in seconds."""
    from minilab.engine.sampling import SamplingParams

    rule = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
    spent = {"model": 0.0, "prefill": 0.0}
    forward = llm.executor.model.forward

    def timed(batch: Any) -> Any:
        began = time.perf_counter()
        logits = forward(batch)
        lasted = time.perf_counter() - began
        spent["model"] += lasted
        spent["prefill"] += lasted if batch.num_prefills else 0.0
        return logits

    llm.executor.model.forward = timed
    execute = llm.executor.execute
    inside = {"executor": 0.0}

    def executed(plan: Any) -> Any:
        began = time.perf_counter()
        outcome = execute(plan)
        inside["executor"] += time.perf_counter() - began
        return outcome

    llm.executor.execute = executed
    began, used = time.perf_counter(), time.process_time()
    outputs = llm.generate(asked, rule)
    total, used = time.perf_counter() - began, time.process_time() - used
    tokens = sum(len(output.token_ids) for output in outputs)
    assert tokens == NUM_REQUESTS * OUTPUT
    return {
        "seconds": total,
        "steps": llm.num_steps,
        "tokens_per_second": tokens / total,
        "cpu_seconds": used,  # of all threads; on a busy machine the number to go by
        "tokens_per_cpu_second": tokens / used,
        "prefill_seconds": spent["prefill"],
        "decode_step_ms": 1e3 * (spent["model"] - spent["prefill"]) / OUTPUT,
        "scheduler_share": 1 - inside["executor"] / total,
        "outside_model_share": 1 - spent["model"] / total,
    }


MATRICES = ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise", "aten::linear")
ATTENTION = ("aten::scaled_dot_product_attention", "aten::index_select", "aten::index_copy_")


def profile(llm: Any, asked: list[list[int]]) -> dict[str, float]:
    """Shares of the time of 24 decode steps, by kind; "other" is small operations and Python."""
    import torch
    from torch.profiler import ProfilerActivity

    from minilab.engine.sampling import SamplingParams

    rule = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
    for prompt in asked:
        llm.add(prompt, rule)
    while llm.scheduler.waiting or llm.scheduler.prefilling:
        llm.step()
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as found:
        began = time.perf_counter()
        for _ in range(24):
            llm.step()
        total = 1e6 * (time.perf_counter() - began)
    times = {event.key: event.cpu_time_total for event in found.key_averages()}
    own = {event.key: event.self_cpu_time_total for event in found.key_averages()}
    matrices = sum(times.get(name, 0.0) for name in MATRICES[2:])
    attention = sum(times.get(name, 0.0) for name in ATTENTION)
    return {
        "matrices": matrices / total,
        "attention": attention / total,
        "small operations": (sum(own.values()) - matrices - attention) / total,
        "python": 1 - sum(own.values()) / total,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail where a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="default: all cores")
    parser.add_argument("--budget", type=int, default=2048, help="max_num_batched_tokens")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    host = common.host()

    import torch

    from minilab.engine.load import smollm2_file
    from minilab.engine.loader import load

    torch.set_num_threads(options.threads or os.cpu_count() or 1)
    checkpoint = load(smollm2_file())
    asked = prompts(checkpoint[0].vocab_size, options.seed)
    run(engine(checkpoint, options.budget), [prompt[:32] for prompt in asked])  # warm up
    runs = []
    for _ in range(options.repeats):
        runs.append(run(engine(checkpoint, options.budget), asked))
        told = {key: round(value, 4) for key, value in runs[-1].items()}
        print(told, file=sys.stderr, flush=True)
    result = {
        "what": "SmolLM2-135M fp32, 16 concurrent requests of 256 prompt and 128 output tokens",
        "host": host | {"torch": torch.__version__, "threads": torch.get_num_threads()},
        "seed": options.seed,
        "max_num_batched_tokens": options.budget,
        **{name: common.spread([one[name] for one in runs]) for name in runs[0]},
        "profile_decode": profile(engine(checkpoint, options.budget), asked),
        "target_tokens_per_second": TARGET_TOKENS_PER_SECOND,
        "target_scheduler_share": TARGET_OVERHEAD,
    }
    speed = result["tokens_per_second"]["median"]
    overhead = result["scheduler_share"]["median"]
    met = speed >= TARGET_TOKENS_PER_SECOND, overhead < TARGET_OVERHEAD
    print(
        f"{speed:.1f} tokens/s (wanted {TARGET_TOKENS_PER_SECOND:.1f}: {common.verdict(met[0])}); "
        f"scheduler {100 * overhead:.2f} % of the time (wanted < 5 %: {common.verdict(met[1])})"
    )
    print("decode:", {key: f"{100 * v:.0f} %" for key, v in result["profile_decode"].items()})
    if not options.no_write:
        common.write("engine_speed", result)
    return 0 if all(met) or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
