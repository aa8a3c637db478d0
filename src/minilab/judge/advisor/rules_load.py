"""Rules on time: queueing, prefill and decode. Each reads signals and returns findings.

A limit counts as missed when more than 1 % of the observations are above it. Runs in the page too.
"""

from minilab.judge.advisor.finding import FAULT, HINT, STATE, Finding, ms, percent
from minilab.judge.advisor.signals import Signals

MISSED = 0.01
"""Share of observations above a limit from which it counts as missed: its p99 is."""

SPIKY = 5.0
"""Gap p99 over median from which stalls, and not a slow step, explain a missed gap limit."""


def missed(signals: Signals, name: str) -> bool:
    """Whether the limit on ttft or itl is missed."""
    return signals.at(name + "_over") > MISSED


def told(signals: Signals, name: str) -> str:
    """The share above a limit, in words."""
    limit = ms(signals.at(name + "_limit"))
    return f"{percent(signals.at(name + '_over'))} of {name} are above {limit}"


def healthy(signals: Signals) -> list[Finding]:
    """Every limit that was given is met, and something was served."""
    limits = [name for name in ("ttft", "itl") if signals.known(name + "_limit")]
    seen = [name for name in limits if signals.known(name + "_over")]
    if not signals.get("requests") or not seen or any(missed(signals, name) for name in seen):
        return []
    worst = max([signals.at(name + "_over") for name in seen])
    evidence = [told(signals, name) for name in seen]
    evidence.append(f"{signals.at('requests'):.0f} requests")
    return [Finding("healthy", 0.9 - 10 * worst, STATE, evidence)]


def idle(signals: Signals) -> list[Finding]:
    """Nothing was served, so nothing can be said."""
    if signals.get("requests"):
        return []
    return [Finding("unknown", 0.5, STATE, ["no request finished in this window"])]


def queueing(signals: Signals) -> list[Finding]:
    """Most of a missed TTFT is time in the queue."""
    if not missed(signals, "ttft"):
        return []
    queue, ttft = signals.get("queue_mean"), signals.at("ttft_mean")
    waiting = signals.at("waiting")
    if queue is None or not ttft:
        if waiting > 0:
            evidence = [told(signals, "ttft"), f"{waiting:.0f} requests wait"]
            return [Finding("queueing", 0.6, FAULT, evidence)]
        return []
    share = min(1.0, queue / ttft)
    if share < 0.3:
        return []
    evidence = [told(signals, "ttft"), f"mean queue {ms(queue)} of mean TTFT {ms(ttft)}"]
    return [Finding("queueing", 0.3 + 0.5 * share, FAULT, evidence)]


def config_limit(signals: Signals) -> list[Finding]:
    """Requests wait although KV is left: a setting holds them back, or the queue is bounded."""
    found = []
    refused = signals.at("refused")
    if refused > 0:
        evidence = [f"{refused:.0f} requests were refused at admission"]
        found.append(Finding("config_limit", 0.6, FAULT, evidence))
    waiting, running, usage = (signals.get(name) for name in ("waiting", "running", "kv_usage"))
    if waiting is None or running is None or usage is None:
        return found
    steady = signals.get("running_min") == running
    if waiting > 0 and usage < 0.7 and steady and missed(signals, "ttft"):
        evidence = [
            f"{waiting:.0f} wait and {running:.0f} run in every scrape",
            f"KV usage is at most {percent(usage)}: max_num_seqs, not memory, is full",
        ]
        # With the gap limit missed too, more sequences per step would make that worse.
        score = 0.5 if missed(signals, "itl") else 0.85
        found.append(Finding("config_limit", score, FAULT, evidence))
    return found


def prefill_heavy(signals: Signals) -> list[Finding]:
    """A missed TTFT is computing, not waiting."""
    ttft = signals.at("ttft_mean")
    if not missed(signals, "ttft") or not ttft:
        return []
    prefill, queue = signals.get("prefill_mean"), signals.get("queue_mean")
    if prefill is None:
        if queue is None or queue > 0.3 * ttft:
            return []
        evidence = [told(signals, "ttft"), f"mean queue is only {ms(queue)}"]
        return [Finding("prefill_heavy", 0.55, FAULT, evidence)]
    share = min(1.0, prefill / ttft)
    if share < 0.4:
        return []
    evidence = [told(signals, "ttft"), f"mean prefill {ms(prefill)} of mean TTFT {ms(ttft)}"]
    if signals.known("prompt_mean"):
        evidence.append(f"mean prompt {signals.at('prompt_mean'):.0f} tokens")
    return [Finding("prefill_heavy", 0.3 + 0.5 * share, FAULT, evidence)]


def prefill_interference(signals: Signals) -> list[Finding]:
    """The gap limit is missed by stalls: the median gap is far below its p99."""
    if not missed(signals, "itl") or not signals.get("itl_p50"):
        return []
    spike = signals.at("itl_p99") / signals.at("itl_p50")
    if spike < SPIKY or signals.at("itl_p50") > signals.at("itl_limit"):
        return []
    evidence = [
        told(signals, "itl"),
        f"gap p99 {ms(signals.at('itl_p99'))} is {spike:.0f} times its median",
    ]
    if signals.known("step_tokens_mean"):
        evidence.append(f"mean step {signals.at('step_tokens_mean'):.0f} tokens")
    score = 0.6 + 0.02 * min(15.0, spike - SPIKY)
    return [Finding("prefill_interference", score, FAULT, evidence)]


def decode_bound(signals: Signals) -> list[Finding]:
    """The gap limit is missed by the ordinary step, not by stalls."""
    if not missed(signals, "itl") or not signals.get("itl_p50"):
        return []
    near = signals.at("itl_p50") / signals.at("itl_limit")
    spike = signals.at("itl_p99") / signals.at("itl_p50")
    if near < 0.4 or (spike >= SPIKY and near < 1):
        return []
    evidence = [told(signals, "itl"), f"the median gap is {ms(signals.at('itl_p50'))}"]
    return [Finding("decode_bound", 0.5 + 0.3 * min(1.0, near), FAULT, evidence)]


def outside(signals: Signals) -> list[Finding]:
    """Much of TTFT is neither queue nor prefill: warm-up, front end, network, client."""
    if not missed(signals, "ttft") or not signals.known("queue_mean", "prefill_mean"):
        return []
    ttft = signals.at("ttft_mean")
    rest = ttft - signals.at("queue_mean") - signals.at("prefill_mean")
    rest -= signals.at("transfer_mean")
    if rest < 0.5 * ttft:
        return []
    evidence = [
        f"{ms(rest)} of mean TTFT {ms(ttft)} are neither queue nor prefill",
        "first requests pay compilation and warm-up; else look at the front end",
    ]
    return [Finding("measurement", 0.5, HINT, evidence)]


LOAD_RULES = [
    healthy,
    idle,
    queueing,
    config_limit,
    prefill_heavy,
    prefill_interference,
    decode_bound,
    outside,
]
