"""moe_maps: where experts on whole GPUs win, and where MLA does, as experiments for regime maps.

The first two are closed loops: so many users, each sending its next request when the last one is
done, so users are the batch. Answers are long, so that decoding fills the time. Drawn from the
simulator; nothing in them was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minilab.sim.experiment import Experiment
from minilab.sim.moe_experiment import MoeExperiment
from minilab.sim.regime_map import RegimeMap, regime_map

USERS = (16, 64, 256, 1024)
WIRES = ("roce-100, half left", "roce-200", "infiniband-400", "one NVLink domain")
CONTEXTS = (1024, 4096, 8192, 16_384)
RATES = (1.0, 2.0, 4.0, 8.0)
LIMITS = "ttft=10,tpot=0.06"
"""Seconds: a start that a burst of users can meet, and 17 tokens a second."""

Side = Callable[[Any, Any], MoeExperiment]


def base(users: int, prompt_tokens: int = 256, output_tokens: int = 512) -> Experiment:
    """DeepSeek-V3 in FP8 on H200s, ``users`` at a time; each side adds its layout."""
    plain = Experiment(
        model="deepseek-v3",
        gpu="h200",
        weight_dtype="native",
        prefix_cache=False,
        max_num_batched_tokens=1024,
        router="least-load",
    )
    return plain.with_(
        trace="synthetic",
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        jitter=0.2,
        concurrency=users,
        limit=2 * users,
    )


def wired(wire: str) -> dict[str, Any]:
    """The fields of MoeExperiment for one of WIRES."""
    if wire == "one NVLink domain":
        return {"gpus_per_node": 64}
    name, _, jam = wire.partition(", ")
    return {"link": name, "congestion": 0.5 if jam else 1.0}


def spread(users: int, wire: str, **changes: Any) -> MoeExperiment:
    """One copy of the model on 16 GPUs: DP attention, EP over all of them."""
    return MoeExperiment.of(base(users), dp=16, **wired(wire), **changes)


def sliced(users: int, wire: str) -> MoeExperiment:
    """Two copies on 8 GPUs each, every matrix in slices: nothing leaves a machine."""
    fields = wired(wire)
    return MoeExperiment.of(base(users), tp=8, instances=2, expert_parallel=False, **fields)


def parallel_map(progress: bool = False) -> RegimeMap:
    """EP over 16 GPUs against two TP8 servers, over batch and interconnect."""
    return _map(spread, sliced, ("EP16", "2 x TP8"), progress)


def dispatch_map(progress: bool = False) -> RegimeMap:
    """FP8 against bf16 dispatch, over batch and interconnect."""

    def plain(users: int, wire: str) -> MoeExperiment:
        return spread(users, wire, dispatch_dtype="bf16")

    return _map(spread, plain, ("FP8 dispatch", "bf16 dispatch"), progress)


def latent_map(layout: str = "dp", progress: bool = False) -> RegimeMap:
    """MLA against the same model with 8 KV heads, over context and load, on 8 GPUs.

    ``layout``: "dp" (a rank per GPU, EP) or "tp" (slices). An open loop: at a given rate, longer
    contexts mean more tokens in flight.
    """
    fields = {"dp": 8} if layout == "dp" else {"tp": 8, "expert_parallel": False}
    where = " with ranks" if layout == "dp" else " in slices"

    def side(gqa_heads: int) -> Side:
        def make(rate: float, context: int) -> MoeExperiment:
            plain = base(1, prompt_tokens=context)
            plain = plain.with_(concurrency=None, rate=rate, limit=max(60, int(40 * rate)))
            return MoeExperiment.of(plain, gqa_heads=gqa_heads, **fields)

        return make

    return regime_map(
        ("requests/s", RATES),
        ("context (tokens)", CONTEXTS),
        side(0),
        side(8),
        context_limits,
        margin=0.03,
        seeds=(0,),
        names=("MLA" + where, "8 KV heads" + where),
        progress=progress,
    )


def context_limits(rate: float, context: int) -> str:
    """SLO of a point of ``latent_map``: the start grows with the prompt, the pace does not."""
    return f"ttft={2 + context / 1000:g},tpot=0.1"


def _map(a: Side, b: Side, names: tuple[str, str], progress: bool) -> RegimeMap:
    return regime_map(
        ("users at a time", USERS),
        ("interconnect", WIRES),
        a,
        b,
        LIMITS,
        margin=0.03,
        seeds=(0,),
        names=names,
        progress=progress,
    )
