"""Levers: what to use and why, what it costs, what not to rush into, and what would change it."""

import math
from typing import Any

from minilab.judge.selector.room import kv_tokens
from minilab.judge.selector.split import transfer_time
from minilab.judge.selector.stack import Stack
from minilab.judge.selector.step import flops_at

ALL = [
    "prefix_cache",
    "prefix_routing",
    "cache_salt",
    "chunked_prefill",
    "pd_split",
    "spec_decode",
    "mtp",
    "fp8_kv",
    "w8a8",
    "int4",
    "kv_tier",
    "admission_control",
    "max_model_len",
    "expert_parallel",
    "more_replicas",
]

PRICE = {
    "prefix_cache": "nothing but its hash look-ups; blocks that nobody asks for again are evicted",
    "prefix_routing": "a router that must know load too, or one replica becomes the hot one",
    "cache_salt": "tenants no longer share equal prefixes, so hits fall to those within a tenant",
    "chunked_prefill": "long prompts take more steps, so their TTFT grows",
    "pd_split": "KV crosses the interconnect, and each pool has to be sized for itself",
    "spec_decode": "a draft to train and to run, wider batches, KV for rejected tokens",
    "mtp": "wider batches; the module is part of the model already",
    "fp8_kv": "an accuracy test, a backend that supports it; speed only in long contexts",
    "w8a8": "an accuracy test and a calibrated checkpoint",
    "int4": "an accuracy test; slower than bf16 once the step is compute-bound",
    "kv_tier": "host memory and its bandwidth; slower than computing for short prefixes",
    "admission_control": "some requests are refused, early and clearly",
    "max_model_len": "longer requests are refused",
    "expert_parallel": "an all-to-all in each layer, and the busiest expert sets the pace",
    "more_replicas": "their price",
}


def advice(tables: Any, settings: Any, choice: Any) -> Any:
    """([(lever, why, price)] to use, [(lever, why)] to leave)."""
    best = choice.best
    use, leave = [], []
    chosen = best.stack.levers()
    moved = "mtp" if tables["models"][settings.model].get("mtp") else "spec_decode"
    for lever in ("chunked_prefill", "prefix_routing", "pd_split", "spec_decode", "fp8_kv",
                  "w8a8", "int4"):  # fmt: skip
        name = moved if lever == "spec_decode" else lever
        if lever in chosen:
            use.append((name, _gain(choice, lever), PRICE[name]))
        else:
            why = _no_gain(settings, choice, lever)
            if why:
                leave.append((name, why))
    _prefix(tables, settings, choice, use, leave)
    _capacity(settings, choice, use, leave)
    _experts(tables, settings, choice, use, leave)
    return use, leave


def _without(stack: Any, lever: str) -> Stack:
    """The same stack with one lever back at its default."""
    layout = "mixed-8192" if lever in ("chunked_prefill", "pd_split") else stack.layout
    weights = "native" if lever in ("w8a8", "int4") else stack.weights
    kv = "bf16" if lever in ("fp8_kv", "w8a8") else stack.kv
    drafts = 0 if lever == "spec_decode" else stack.drafts
    return Stack(layout, weights, kv, drafts, stack.routing and lever != "prefix_routing")


def _with(stack: Any, lever: str) -> Stack:
    """The same stack with one lever more."""
    layout = {"chunked_prefill": "mixed-2048", "pd_split": "split"}.get(lever, stack.layout)
    weights = {"w8a8": "fp8", "int4": "int4"}.get(lever, stack.weights)
    kv = "fp8" if lever in ("fp8_kv", "w8a8") else stack.kv
    drafts = 4 if lever == "spec_decode" else stack.drafts
    return Stack(layout, weights, kv, drafts, stack.routing or lever == "prefix_routing")


def _gain(choice: Any, lever: str) -> str:
    best = choice.best
    without = choice.bench.judge(_without(best.stack, lever))
    return (
        f"goodput per GPU {without.goodput_per_gpu:.3g} -> {best.goodput_per_gpu:.3g}, "
        f"TTFT {seconds(without.ttft)} -> {seconds(best.ttft)}, "
        f"ITL {seconds(without.itl)} -> {seconds(best.itl)}"
    )


def _no_gain(settings: Any, choice: Any, lever: str) -> str:
    """Why a lever is left alone; empty where there is nothing to say."""
    if lever in ("pd_split", "prefix_routing") and choice.bench.instances < 2:
        return "needs at least two instances" if lever == "pd_split" else ""
    if lever == "prefix_routing" and settings.shared_tokens() <= 0:
        return "no shared prefix to follow"
    if lever == "spec_decode" and settings.acceptance <= 0:
        return "no draft is at hand (acceptance 0)"
    if lever == "chunked_prefill" and choice.best.stack.layout == "split":
        return ""
    best = choice.best
    more = choice.bench.judge(_with(best.stack, lever))
    if more.goodput_per_gpu > 1.03 * best.goodput_per_gpu:
        return ""
    change = f"{best.goodput_per_gpu:.3g} -> {more.goodput_per_gpu:.3g}"
    if more.goodput_per_gpu >= 0.97 * best.goodput_per_gpu:
        if best.attainment > 0.99:
            return "the limits are met without it"
        return "no more goodput here"
    return f"it loses here: goodput per GPU {change}"


def _prefix(tables: Any, settings: Any, choice: Any, use: list[Any], leave: list[Any]) -> None:
    shared = settings.shared_tokens()
    if shared <= 0:
        leave.append(("prefix_cache", "no whole block is shared; it is on by default, and idle"))
    else:
        part = shared / settings.prompt
        why = f"{part * 100:.0f} % of each prompt is computed once per group, not once per request"
        use.append(("prefix_cache", why, PRICE["prefix_cache"]))
    if settings.tenants > 1:
        why = f"{settings.tenants:.0f} tenants must not learn of each other's prompts by timing"
        use.append(("cache_salt", why, PRICE["cache_salt"]))
    _tier(tables, settings, choice, shared, use, leave)


def _tier(
    tables: Any,
    settings: Any,
    choice: Any,
    shared: float,
    use: list[Any],
    leave: list[Any],
) -> None:
    stack = choice.best.stack
    model = tables["models"][settings.model]
    room = kv_tokens(tables, settings.model, settings.gpu, choice.bench.tp, stack.weights, stack.kv)
    wanted = shared * settings.groups * settings.tenants
    if shared <= 0 or wanted <= 0.5 * room * choice.bench.instances:
        leave.append(("kv_tier", "everything that is shared fits on the GPU"))
        return
    size = sum(model["kv"][stack.kv][str(choice.bench.tp)])
    load = transfer_time(shared, size, tables["links"]["pcie-5"])
    active = 2 * model["moe_layers"] * model["top_k"] * model["expert_params"]
    flops = shared * (2 * (model["body_params"] + model["head_params"]) + active)
    card = tables["gpus"][settings.gpu]
    peak = flops_at(card["flops"], "bf16") * card["constants"]["e_comp"]
    compute = flops / (choice.bench.tp * peak)
    words = f"loading {seconds(load)} from host memory, computing {seconds(compute)}"
    if load < compute:
        use.append(("kv_tier", f"shared prefixes overflow the GPU; {words}", PRICE["kv_tier"]))
    else:
        leave.append(("kv_tier", words))


def _capacity(settings: Any, choice: Any, use: list[Any], leave: list[Any]) -> None:
    best = choice.best
    load = settings.rate / best.capacity if best.capacity else math.inf
    if load > 0.8 or best.attainment < 0.9:
        need = max(1, math.ceil(choice.bench.instances * load / 0.7)) if load < math.inf else 0
        why = f"{settings.rate:.3g} requests/s against a capacity of {best.capacity:.3g}"
        if load > 0.8 and need:
            use.append(("more_replicas", f"{why}: about {need} instances", PRICE["more_replicas"]))
        if load > 0.9:
            use.append(("admission_control", why, PRICE["admission_control"]))
    else:
        why = f"at {load * 100:.0f} % of capacity nothing needs to be refused or added"
        leave.append(("more_replicas", why))
        leave.append(("admission_control", why))
    if best.bars["kv_capacity"] > 0.8:
        tokens = int(settings.prompt * (1 + 2 * settings.cv) + settings.output)
        why = f"the KV pool is full; the workload needs about {tokens} tokens per request"
        use.append(("max_model_len", why, PRICE["max_model_len"]))
    else:
        leave.append(("max_model_len", "the KV pool is not what is short"))


def _experts(tables: Any, settings: Any, choice: Any, use: list[Any], leave: list[Any]) -> None:
    model = tables["models"][settings.model]
    if not model["experts"]:
        return
    flying = choice.best.tokens_in_flight / (settings.prompt + settings.output / 2.0)
    each = flying * model["top_k"] / model["experts"]
    needed = model["ranks_from"][str(choice.bench.tp)] if choice.bench.tp <= 8 else None
    words = f"{flying:.0f} sequences at once, {each:.2g} tokens per expert and step"
    if choice.bench.tp == 1:
        leave.append(("expert_parallel", "one GPU holds all experts"))
    elif needed is not None and flying >= needed:
        use.append(("expert_parallel", f"{words}; it pays from {needed}", PRICE["expert_parallel"]))
    else:
        least = "no batch" if needed is None else f"{needed} sequences"
        leave.append(("expert_parallel", f"{words}; it pays from {least} on"))


def seconds(value: float) -> str:
    """A time for people."""
    if value == math.inf:
        return "without bound"
    return f"{value * 1e3:.3g} ms" if value < 1.0 else f"{value:.3g} s"
