"""expose: a run log as the page of /metrics that a vLLM server would have shown after that run.

For tests and drills: what the simulator knows, in the words in which a learner sees a real server.
Gauges are those at the end of the run, so 0, unless ``during`` gives them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minilab.facts.arrays import FloatArray
from minilab.facts.metrics import metric
from minilab.facts.runlog import RunLog

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000)
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


def expose(
    log: RunLog, *, start: float, model: str = "model", during: Mapping[str, float] | None = None
) -> str:
    """Prometheus text with vLLM's metric names.

    ``start``: process start time (s since 1970), which tells servers apart. ``during``: gauges by
    name without "vllm:".
    """
    page = [f"process_start_time_seconds {start:.11g}"]
    label = f'engine="0",model_name="{model}"'
    columns = log.requests
    for name, values in (
        ("time_to_first_token_seconds", metric(log, "ttft")),
        ("inter_token_latency_seconds", None if log.gaps is None else log.gaps.to_lists().values),
        ("request_time_per_output_token_seconds", metric(log, "tpot")),
        ("request_queue_time_seconds", columns["queue"]),
        ("request_prefill_time_seconds", columns["prefill"]),
        ("request_decode_time_seconds", columns["decode"]),
        ("nixl_xfer_time_seconds", columns["transfer"]),
    ):
        page += _histogram(name, values, SECONDS, label)
    for name in ("prompt", "generation"):
        tokens = columns["prompt_tokens" if name == "prompt" else "output_tokens"].astype(float)
        page += _histogram(f"request_{name}_tokens", tokens, TOKENS, label)
        page.append(f"vllm:{name}_tokens_total{{{label}}} {tokens.sum():.10g}")
    cached = np.maximum(columns["cached_tokens"], 0).sum()
    config = log.meta.get("config")
    on = not isinstance(config, dict) or bool(config.get("prefix_cache", True))
    looked = columns["prompt_tokens"].sum() if on else 0
    page += [
        f"vllm:prefix_cache_queries_total{{{label}}} {looked}",
        f"vllm:prefix_cache_hits_total{{{label}}} {cached}",
        f"vllm:num_preemptions_total{{{label}}} {columns['preemptions'].sum()}",
        f'vllm:request_success_total{{{label},finished_reason="length"}} {log.finished.sum()}',
        f'vllm:cache_config_info{{{label},enable_prefix_caching="{on}"}} 1.0',
    ]
    page += [
        f"vllm:spec_decode_{name}_total{{{label}}} {count}"
        for name, count in log.meta.get("speculation", {}).items()
    ]
    page += [f"vllm:{name}{{{label}}} {(during or {}).get(name, 0.0):.6g}" for name in GAUGES]
    return "\n".join(page) + "\n"


def _histogram(
    name: str, values: FloatArray | None, bounds: tuple[float, ...], label: str
) -> list[str]:
    known = np.empty(0) if values is None else values[~np.isnan(values)]
    if not len(known):
        return []
    lines = [
        f'vllm:{name}_bucket{{{label},le="{bound}"}} {(known <= bound).sum()}' for bound in bounds
    ]
    lines.append(f'vllm:{name}_bucket{{{label},le="+Inf"}} {len(known)}')
    lines.append(f"vllm:{name}_sum{{{label}}} {known.sum():.10g}")
    lines.append(f"vllm:{name}_count{{{label}}} {len(known)}")
    return lines
