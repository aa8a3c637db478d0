"""Rules on speculative decoding and on mixtures of experts. Runs in the page too."""

from minilab.judge.advisor.finding import FAULT, HINT, Finding, ms, percent
from minilab.judge.advisor.rules_load import missed
from minilab.judge.advisor.signals import Signals

KNEE = 128.0
"""Positions verified per step from which a GPU's matrix units, not its memory, are the limit.

The roofline's own knee is peak FLOP/s over bytes/s (H100 bf16: 295; A100: 153): verification
begins to cost in proportion well before it."""


def spec_idle(signals: Signals) -> list[Finding]:
    """Speculation is on and hardly ever proposes anything."""
    share = signals.get("drafted_share")
    if not signals.at("spec_on") or share is None or share >= 0.1:
        return []
    evidence = [
        f"{signals.at('drafts'):.0f} drafts: {percent(share)} of the decode steps had one",
        "each step still pays for looking",
    ]
    return [Finding("spec_idle", 0.75, HINT, evidence)]


def spec_low_acceptance(signals: Signals) -> list[Finding]:
    """What is drafted is rejected."""
    rate = signals.get("acceptance")
    if not signals.at("spec_on") or rate is None or rate >= 0.35:
        return []
    evidence = [f"{percent(rate)} of the drafted tokens were accepted"]
    if signals.known("acceptance_length"):
        evidence.append(f"acceptance length {signals.at('acceptance_length'):.2f}")
    if signals.known("first_position"):
        evidence.append(f"first position {percent(signals.at('first_position'))}")
    often = signals.at("drafted_share", 1.0) >= 0.1
    kind = FAULT if often and missed(signals, "itl") else HINT
    return [Finding("spec_low_acceptance", 0.7 if often else 0.5, kind, evidence)]


def spec_high_batch(signals: Signals) -> list[Finding]:
    """Acceptance is fine, the batch is large: verifying is no longer free."""
    running, depth = signals.get("running"), signals.at("num_drafts", 3.0)
    if not signals.at("spec_on") or running is None or signals.at("drafted_share", 1.0) < 0.1:
        return []
    verified = running * (depth + 1)
    if verified < KNEE:
        return []
    evidence = [
        f"{running:.0f} sequences x {depth + 1:.3g} positions = {verified:.0f} per step",
        f"from about {KNEE:.0f} on verifying costs computing time",
    ]
    late = missed(signals, "itl") or missed(signals, "ttft")
    return [Finding("spec_high_batch", 0.65 if late else 0.35, FAULT if late else HINT, evidence)]


def spec_draft_cost(signals: Signals) -> list[Finding]:
    """Against a run without speculation: accepted well, batch small, and yet slower."""
    now, before = signals.get("tpot_mean"), signals.get("baseline_tpot_mean")
    if not signals.at("spec_on") or now is None or before is None or now <= before:
        return []
    evidence = [f"TPOT {ms(now)} against {ms(before)} without speculation"]
    rate = signals.get("acceptance")
    if rate is not None and rate < 0.35:
        return [Finding("spec_low_acceptance", 0.8, FAULT, evidence)]
    if signals.at("running") * (signals.at("num_drafts", 3.0) + 1) >= KNEE:
        return [Finding("spec_high_batch", 0.85, FAULT, evidence)]
    evidence.append("the batch is small, so the draft itself is what costs")
    return [Finding("spec_draft_cost", 0.8, FAULT, evidence)]


def moe_imbalance(signals: Signals) -> list[Finding]:
    """Experts are loaded unevenly: the slowest rank sets the step."""
    balance = signals.get("balance")
    if balance is None:
        if signals.at("moe") and (missed(signals, "itl") or missed(signals, "ttft")):
            evidence = ["a mixture of experts misses its SLO and its balance is not exported"]
            return [Finding("moe_imbalance", 0.3, HINT, evidence)]
        return []
    if balance >= 0.7:
        return []
    evidence = [
        f"mean over maximum expert load is {balance:.2f}: the busiest rank works "
        f"{1 / max(balance, 0.01):.1f} times the mean"
    ]
    late = missed(signals, "itl") or missed(signals, "ttft")
    return [Finding("moe_imbalance", 0.85 - 0.3 * balance, FAULT if late else HINT, evidence)]


def moe_communication(signals: Signals) -> list[Finding]:
    """A balanced mixture of experts that still misses its gap limit: look at the all-to-all."""
    if not signals.at("moe") or not missed(signals, "itl"):
        return []
    balance = signals.get("balance")
    if balance is not None and balance < 0.7:
        return []
    evidence = ["a mixture of experts misses its gap limit", "measure the all-to-all of one layer"]
    return [Finding("moe_communication", 0.6 if balance is not None else 0.35, HINT, evidence)]


SPEC_RULES = [
    spec_idle,
    spec_low_acceptance,
    spec_high_batch,
    spec_draft_cost,
    moe_imbalance,
    moe_communication,
]
