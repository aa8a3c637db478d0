"""``vllm bench serve --save-result --save-detailed``: one JSON object, times in seconds.

What it measures, at the client: ttft until the first chunk (at a chat endpoint that one may carry
no token, only the role), itls between *chunks*, latency until the last chunk, so that
ttft + sum(itls) == latency. tpot = (latency - ttft) / (output_lens - 1). Its goodput keys are ttft,
tpot and e2el in ms; tpot is 0 for goodput where there is one token. A failed request stands in the
arrays as 0.0; vLLM leaves it out of its statistics and counts it in no denominator.

Missing: what the server did (queue, cached tokens, preemptions), the version, which chunk held
more than one token, and what a failed request got before it failed. With --max-concurrency the
client holds requests back: start_times are when they were sent, and the wait before stands in
meta["client_queue"]. Poisson arrivals are rescaled to end at n / rate; meta["arrivals"] has the
rate achieved. One difference: a request that ended without any token is not good here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minilab.facts.readers.arrays import Arrays, check_completed, rate_of, read_arrays
from minilab.facts.readers.build import Measured, Told, run_log
from minilab.facts.readers.node import Node
from minilab.facts.readers.source import Source
from minilab.facts.runlog import RunLog

FORMAT = "vllm"
TOOL = "vllm bench serve"
DEFINITIONS = {
    "ttft": "first chunk - request sent",
    "tpot": "(last chunk - first chunk) / (output tokens - 1)",
    "gap": "time between chunks, not tokens; tokens that share a chunk have gaps of 0",
    "finish": "last chunk",
    "goodput": "requests within all limits / duration; failed ones are in no denominator",
}


def matches(value: Any) -> bool:
    """Whether a JSON value looks like a result of this tool."""
    keys = value if isinstance(value, dict) else {}
    return "total_token_throughput" in keys or {"tokenizer_id", "request_throughput"} <= set(keys)


def read(source: Source, run: Node) -> RunLog:
    """The run as a log.

    Raises:
        InputError: no value per request, or one that cannot be.
    """
    found = read_arrays(run, "--save-result --save-detailed")
    check_completed(run, int((~found.failed).sum()))
    extra: dict[str, Any] = {"client_queue": _client_queue(run, found)}
    for name in ("date", "backend", "model_id"):
        if (node := run.find(name)) is not None:
            extra[name] = node.text()
    goodput = run.find("request_goodput")
    if goodput is not None:
        extra["request_goodput"] = goodput.number(0.0, 1e9, "requests/s")
    duration = run.get("duration").number(1e-9)
    told = Told(FORMAT, TOOL, None, DEFINITIONS, duration, rate_of(run), extra)
    return run_log(source, _measured(found), told)


def _measured(found: Arrays) -> Measured:
    latency = found.sums if found.latency is None else found.latency
    return Measured(
        start=found.start,
        ttft=np.where(found.ttft > 0, found.ttft, np.nan),
        last=np.where(latency > 0, latency, np.nan),
        prompt=found.prompt,
        tokens=found.tokens,
        status=["failed" if failed else "finished" for failed in found.failed.tolist()],
        rows=found.rows,
        errors=found.errors,
    )


def _client_queue(run: Node, found: Arrays) -> dict[str, float] | None:
    """Seconds that requests waited in the client itself, unseen in ttft; None if not recorded."""
    node = run.find("queue_times")
    if node is None or not found.count:
        return None
    node.size(found.count, "ttfts")
    waited = node.numbers()
    return {"mean": float(waited.mean()), "max": float(waited.max())}
