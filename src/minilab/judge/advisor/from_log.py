"""signals_of_log: the advisor's signals from a run log, whoever wrote it.

A run log knows each request, so shares above a limit are counted, not read off buckets. What a
client cannot see (queue, KV) is unknown, and said to be.
"""

from __future__ import annotations

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.metrics import metric
from minilab.facts.runlog import RunLog
from minilab.judge.advisor.signals import Signals


def signals_of_log(
    log: RunLog, slo: dict[str, float], name: str = "run", role: str = ""
) -> Signals:
    """The signals of one run. ``slo``: seconds by name of metric (ttft, itl, tpot)."""
    signals = Signals(name, role)
    for word in ("ttft", "tpot", "queue", "e2e"):
        _spread(signals, word, metric(log, word), slo)
    _gaps(signals, log, slo)
    _stages(signals, log)
    _tokens(signals, log)
    signals.notes.append("read from the record of each request")
    return signals


def _spread(signals: Signals, name: str, values: FloatArray | None, slo: dict[str, float]) -> None:
    known = None if values is None else values[~np.isnan(values)]
    if known is None or not len(known):
        signals.unknown[name] = f"the file does not record {name}; scrape the server's /metrics"
        return
    signals.values[name + "_mean"] = float(known.mean())
    signals.values[name + "_p50"] = float(np.quantile(known, 0.5))
    signals.values[name + "_p99"] = float(np.quantile(known, 0.99))
    if name in slo:
        signals.values[name + "_limit"] = slo[name]
        signals.values[name + "_over"] = float((known > slo[name]).mean())


def _gaps(signals: Signals, log: RunLog, slo: dict[str, float]) -> None:
    if log.gaps is None or not log.gaps.counts().any():
        signals.unknown["itl"] = "the file holds no gaps between tokens"
        return
    _spread(signals, "itl", log.gaps.to_lists().values, slo)


def _stages(signals: Signals, log: RunLog) -> None:
    for name in ("prefill", "decode", "transfer"):
        column = log.requests[name]
        if not np.isnan(column).all():
            signals.values[name + "_mean"] = float(np.nanmean(column))
    size = log.meta.get("transfer_bytes_mean")
    if isinstance(size, (int, float)) and signals.get("transfer_mean"):
        signals.values["transfer_bytes"] = float(size)
        signals.values["transfer_rate"] = float(size) / signals.at("transfer_mean")


def _tokens(signals: Signals, log: RunLog) -> None:
    values, columns = signals.values, log.requests
    values["requests"] = float(log.finished.sum())
    for name in ("prompt", "output"):
        tokens = columns[name + "_tokens"]
        values[name + "_tokens"] = float(tokens.sum())
        values[name + "_mean"] = float(tokens.mean()) if len(tokens) else None
    refused = float((columns["status"] == "rejected").sum())
    values["refused"] = refused
    if "num_blocks" not in log.meta:
        signals.unknown["kv_usage"] = "a client cannot see the KV pool; scrape /metrics"
        return
    lost = float(columns["preemptions"].sum())
    values["preemptions"] = lost
    values["preempted"] = lost / values["requests"] if values["requests"] else None
    usage = log.meta.get("kv_peak_usage")
    values["kv_usage"] = float(usage) if isinstance(usage, (int, float)) else None
    prompt = values["prompt_tokens"]
    if prompt:
        values["hit_rate"] = float(np.maximum(columns["cached_tokens"], 0).sum()) / prompt
    config = log.meta.get("config")
    if isinstance(config, dict) and "prefix_cache" in config:
        values["prefix_on"] = 1.0 if config["prefix_cache"] else 0.0
