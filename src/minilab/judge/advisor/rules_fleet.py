"""Rules over several servers: replicas behind a router, prefill and decode pools.

Runs in the page too.
"""

from minilab.judge.advisor.finding import FAULT, HINT, Finding, ms, percent
from minilab.judge.advisor.rules_load import missed
from minilab.judge.advisor.signals import Signals

UNEVEN = 1.5
"""Maximum over mean load from which a router is suspected."""


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def router_imbalance(servers: list[Signals]) -> list[Finding]:
    """One replica of several gets much more than its share."""
    replicas = [server for server in servers if server.role == "replica"]
    if len(replicas) < 2:
        return []
    found = []
    late = any(missed(server, "ttft") or missed(server, "itl") for server in replicas)
    for name, what in (("prompt_tokens", "prompt tokens"), ("requests", "requests")):
        loads = [server.at(name) for server in replicas]
        mean = _mean(loads)
        if not mean or max(loads) / mean < UNEVEN:
            continue
        busiest = replicas[loads.index(max(loads))].name
        evidence = [f"{busiest} got {max(loads) / mean:.2f} times the mean of {what}"]
        waits = [server.at("queue_mean") for server in replicas]
        if max(waits) > 0:
            evidence.append(f"mean queue {ms(min(waits))} to {ms(max(waits))} over the replicas")
        score = 0.6 + 0.15 * min(2.0, max(loads) / mean - UNEVEN)
        found.append(Finding("router_imbalance", score if late else 0.4, FAULT, evidence))
        if not late:
            found[-1].kind = HINT
        break
    return found


def prefix_spread(servers: list[Signals]) -> list[Finding]:
    """Replicas that all compute long prompts anew: the router does not follow the prefix."""
    replicas = [server for server in servers if server.role == "replica"]
    if len(replicas) < 2 or not any(missed(server, "ttft") for server in replicas):
        return []
    rates = [server.get("hit_rate") for server in replicas]
    known = [rate for rate in rates if rate is not None]
    prompt = _mean([server.at("prompt_mean") for server in replicas])
    if not known or _mean(known) >= 0.3 or prompt < 256:
        return []
    evidence = [
        f"{percent(_mean(known))} of prompt tokens hit over {len(replicas)} replicas",
        f"mean prompt {prompt:.0f} tokens",
        "if callers ask several times about one text, a prefix-aware router would find it",
    ]
    ttft = _mean([server.at("ttft_mean") for server in replicas])
    computing = _mean([server.at("prefill_mean") for server in replicas])
    share = min(1.0, computing / ttft) if ttft else 0.0
    evidence.append(f"{percent(share)} of TTFT are prefill")
    return [Finding("prefix_miss", 0.45 + 0.3 * share, FAULT, evidence)]


def _pool(servers: list[Signals], role: str) -> list[Signals]:
    return [server for server in servers if server.role == role]


def kv_transfer(servers: list[Signals]) -> list[Finding]:
    """The way between the pools costs a good part of what a caller waits for.

    A decode server's own TTFT begins when the prompt is done elsewhere, so that time is added.
    """
    found = []
    before = _mean([server.at("ttft_mean") for server in _pool(servers, "prefill")])
    for server in servers:
        time, ttft = server.get("transfer_mean"), server.get("ttft_mean")
        if ttft is not None and server.role == "decode":
            ttft += before
        failed = server.at("failed_transfers")
        if failed > 0:
            evidence = [f"{failed:.0f} transfers failed"]
            found.append(Finding("network", 0.7, FAULT, evidence))
        if time is None or not ttft:
            continue
        share = time / ttft
        if share < 0.25:
            continue
        evidence = [f"a transfer takes {ms(time)} of {ms(ttft)} until there is an answer"]
        if server.known("transfer_bytes", "transfer_rate"):
            evidence.append(
                f"{server.at('transfer_bytes') / 1e6:.3g} MB each at "
                f"{server.at('transfer_rate') / 1e9:.3g} GB/s"
            )
        if server.known("transfer_descriptors"):
            evidence.append(f"{server.at('transfer_descriptors'):.0f} descriptors each")
        late = missed(server, "ttft") or missed(server, "itl")
        score = 0.5 + 0.4 * min(1.0, share)
        found.append(Finding("kv_transfer", score if late else 0.4, FAULT, evidence))
        if not late:
            found[-1].kind = HINT
    return found


def recomputed(servers: list[Signals]) -> list[Finding]:
    """The decode side computes prompts again: it does not use the KV it was sent."""
    found = []
    prefills = _pool(servers, "prefill")
    there = _mean([server.at("prefill_mean") for server in prefills])
    for server in _pool(servers, "decode"):
        here = server.at("prefill_mean")
        if there > 0 and here >= 0.5 * there and server.get("transfer_mean") is None:
            evidence = [
                f"the decode pool spends {ms(here)} on prefill, the prefill pool {ms(there)}",
                "its KV does not arrive or is not used",
            ]
            found.append(Finding("kv_transfer", 0.75, FAULT, evidence))
    return found


def pd_ratio(servers: list[Signals]) -> list[Finding]:
    """One pool is late while the other has nothing to do."""
    prefills, decodes = _pool(servers, "prefill"), _pool(servers, "decode")
    if not prefills or not decodes:
        return []
    queue = _mean([server.at("queue_mean") for server in prefills])
    ttft = _mean([server.at("ttft_mean") for server in prefills])
    late_first = any(missed(server, "ttft") for server in prefills + decodes)
    late_gap = any(missed(server, "itl") for server in decodes)
    waits = _mean([server.at("queue_mean") for server in decodes])
    if late_first and not late_gap and ttft and queue > 0.4 * ttft and waits < 0.5 * queue:
        evidence = [
            f"the prefill pool queues {ms(queue)} of {ms(ttft)}",
            "the decode pool meets its gap limit: it has room",
        ]
        return [Finding("pd_ratio", 0.8, FAULT, evidence)]
    starved = waits > 0.3 * (ttft + _mean([server.at("ttft_mean") for server in decodes]))
    if (starved and queue < 0.3 * waits) or (late_gap and queue < 0.1 * max(ttft, 1e-9)):
        evidence = [
            f"the prefill pool queues {ms(queue)} only",
            f"the decode pool queues {ms(waits)} or misses its gap limit",
        ]
        return [Finding("pd_ratio", 0.75, FAULT, evidence)]
    return []


FLEET_RULES = [router_imbalance, prefix_spread, kv_transfer, recomputed, pd_ratio]
