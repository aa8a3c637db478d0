"""What a drill says: the suspects in plain words, and the verdict on a choice."""

from __future__ import annotations

from minilab.judge.drill.case import Played

SUSPECTS = {
    "queueing": "More requests arrive than it can serve",
    "config_limit": "A setting holds requests back",
    "kv_capacity": "The KV pool is too small",
    "prefill_interference": "Prompts cut into the streams",
    "prefill_heavy": "Computing the prompts takes too long",
    "decode_bound": "Every decode step is too slow",
    "prefix_off": "The prefix cache is off",
    "prefix_miss": "The router ignores where prefixes are",
    "router_imbalance": "The router ignores how long queues are",
    "pd_ratio": "The pools of the split are out of balance",
    "kv_transfer": "The KV takes too long on the wire",
    "spec_high_batch": "Speculation at too large a batch",
    "healthy": "Nothing is wrong",
}
"""Ids of the advisor -> what a person would say."""


def suspect_said(played: Played, suspect: str) -> str:
    """Whether the suspect was the right one, and by which setting."""
    truth = played.case.truth
    right = "Right" if suspect == truth else f"It was another: {SUSPECTS[truth].lower()}"
    return f"{right}. {changes_said(played)}"


def changes_said(played: Played) -> str:
    """The settings that went wrong, with their values before and after, in a sentence."""
    if not played.case.sickness:
        return "No setting had changed."
    healthy, sick = played.case.healthy.settings(), played.case.sick.settings()
    changes = [
        f"{name} {healthy.get(name, 'default')} → {sick[name]}" for name in played.case.sickness
    ]
    return f"What had changed: {', '.join(changes)}."


def action_said(played: Played, key: str) -> str:
    """What an action would have done, in goodput, against the best one."""
    label = {action.key: action.label for action in played.case.actions}
    now, then = played.before.goodput, played.after[key].goodput
    text = f"Goodput per GPU {now:.2f} → {then:.2f} requests/s"
    if key in played.good:
        return f"{text}: a good first action."
    if played.good == ["leave"]:
        return f"{text}. Leaving it alone reaches {played.after['leave'].goodput:.2f} for nothing."
    best = max(played.after, key=lambda one: played.after[one].goodput)
    reached = played.after[best].goodput
    return f"{text}, {played.score(key):.0%} of the best: {label[best]} reaches {reached:.2f}."


def advisor_said(played: Played) -> str:
    """The advisor's first suspect on the same pages, and whether it is the right one."""
    first = played.advice.diagnosis.first
    words = SUSPECTS.get(first, first.replace("_", " "))
    if first == played.case.truth:
        return f"minilab diagnose, given the same pages, names it first: {words.lower()}."
    ranked = [finding.id for finding in played.advice.diagnosis.suspects]
    if played.case.truth in ranked:
        place = f"puts the truth in place {ranked.index(played.case.truth) + 1}"
    else:
        place = "does not name the truth at all"
    return f"minilab diagnose, given the same pages, suspects first: {words.lower()}. It {place}."
