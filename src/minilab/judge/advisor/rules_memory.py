"""Rules on memory: KV blocks, preemption, prefix cache, tiers. Runs in the page too."""

from minilab.judge.advisor.finding import FAULT, HINT, Finding, ms, percent
from minilab.judge.advisor.rules_load import missed
from minilab.judge.advisor.signals import Signals

FULL = 0.9
"""KV usage from which the pool counts as full: the next long prompt does not fit."""


def _late(signals: Signals) -> bool:
    return missed(signals, "ttft") or missed(signals, "itl")


def kv_capacity(signals: Signals) -> list[Finding]:
    """The KV pool is full, or so small that few sequences fit."""
    usage, lost = signals.get("kv_usage"), signals.at("preempted")
    evidence = []
    score = 0.0
    if usage is not None and usage >= FULL:
        score = 0.7 + 2.0 * (usage - FULL)
        evidence.append(f"KV usage reached {percent(usage)}")
    if lost >= 0.05:
        score = max(score, 0.6) + 0.05
        evidence.append(f"{signals.at('preemptions'):.0f} preemptions: blocks ran out")
    if not evidence:
        return []
    if signals.known("kv_seqs"):
        evidence.append(f"the pool holds {signals.at('kv_seqs'):.0f} requests of the mean length")
    if signals.at("waiting") > 0:
        evidence.append(f"{signals.at('waiting'):.0f} requests wait")
    late = _late(signals)
    return [Finding("kv_capacity", score if late else 0.4, FAULT if late else HINT, evidence)]


def preemption(signals: Signals) -> list[Finding]:
    """Running requests lose their blocks and are computed again."""
    lost = signals.at("preempted")
    if lost < 0.02:
        return []
    evidence = [f"{signals.at('preemptions'):.0f} preemptions, {lost:.2f} per request"]
    if missed(signals, "itl"):
        evidence.append("a preempted stream stands still until it is computed again")
    kind = FAULT if _late(signals) else HINT
    return [Finding("preemption", 0.45 + 0.35 * min(1.0, lost), kind, evidence)]


def prefix_off(signals: Signals) -> list[Finding]:
    """The prefix cache is switched off. A hint: whether prompts share anything is not exported."""
    if signals.get("prefix_on") != 0.0 or not signals.get("requests"):
        return []
    evidence = ["enable_prefix_caching is False, or no token was ever looked up"]
    if signals.known("prompt_mean"):
        evidence.append(f"mean prompt {signals.at('prompt_mean'):.0f} tokens")
    long = signals.at("prompt_mean") >= 512
    late = missed(signals, "ttft") and signals.at("prefill_mean") > 0.4 * signals.at("ttft_mean")
    return [Finding("prefix_off", 0.5 if long and late else 0.35, HINT, evidence)]


def prefix_miss(signals: Signals) -> list[Finding]:
    """The cache is on, prompts are long, and little of them is found."""
    rate = signals.get("hit_rate")
    if rate is None or signals.get("prefix_on") == 0.0 or signals.at("prompt_mean") < 256:
        return []
    ttft = signals.at("ttft_mean")
    if rate >= 0.2 or not missed(signals, "ttft") or not ttft:
        return []
    share = signals.at("prefill_mean", 0.5 * ttft) / ttft
    evidence = [
        f"{percent(rate)} of prompt tokens were found in the cache",
        f"mean prompt {signals.at('prompt_mean'):.0f} tokens",
    ]
    if rate == 0.0:
        evidence.append("no hit at all: salt, adapter, template or block size may differ")
    score = 0.35 + 0.25 * min(1.0, share) + (0.1 if rate == 0.0 else 0.0)
    return [Finding("prefix_miss", score, FAULT, evidence)]


def tier_slower(signals: Signals) -> list[Finding]:
    """A second cache tier is asked and has nothing, or the first one has it already."""
    rate = signals.get("tier_hit_rate")
    if rate is None:
        return []
    first = signals.get("hit_rate")
    if rate < 0.05:
        evidence = [f"the outer tier had {percent(rate)} of the tokens it was asked for"]
        if first is not None and first >= 0.5:
            evidence.append(f"the GPU's own cache has {percent(first)} already")
        late = missed(signals, "ttft")
        return [Finding("tier_slower", 0.6 if late else 0.35, FAULT if late else HINT, evidence)]
    if missed(signals, "ttft") and signals.at("queue_mean") < 0.3 * signals.at("ttft_mean"):
        evidence = [
            f"the outer tier delivers {percent(rate)} of the tokens it is asked for",
            f"and mean TTFT is {ms(signals.at('ttft_mean'))} with little queue: "
            "compare bytes/bandwidth with computing",
        ]
        return [Finding("tier_slower", 0.55, FAULT, evidence)]
    return []


MEMORY_RULES = [kv_capacity, preemption, prefix_off, prefix_miss, tier_slower]
