"""ServerMetrics: /metrics under vLLM's names and with its buckets, so that one reader reads both.

Names, labels and buckets are those of vLLM 0.32 (V1 engine). What an aborted request did before it
was given up counts in the token counters, and it stands under ``abort`` in
``vllm:request_success_total``; its times are in no histogram of whole requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from minilab.core.config import SchedulerConfig
from minilab.serve.spec_metrics import SpecMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REASONS = ("stop", "length", "abort", "error")

_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_GAP = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def token_buckets(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, ... up to ``most``, as vLLM cuts counts of tokens."""
    found = []
    power = 1
    while power <= most:
        found += [power * digit for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return tuple(found)


@dataclass(frozen=True)
class Snapshot:
    """The engine between two steps.

    Attributes:
        running, waiting: requests with a running slot, and in the queue.
        used_blocks: KV blocks that some request holds.
        taken: requests handed over so far.
    """

    running: int = 0
    waiting: int = 0
    used_blocks: int = 0
    taken: int = 0


@dataclass(frozen=True)
class Ended:
    """A request that ran to its end. Times are seconds on one clock.

    Attributes:
        arrival, scheduled, first, last: when it came, left the queue, and put out its first and its
            last token.
        prompt, cached, output, most: tokens: of the prompt, of it found in the prefix cache, put
            out, and allowed.
    """

    reason: str
    arrival: float
    scheduled: float
    first: float
    last: float
    prompt: int
    cached: int
    output: int
    most: int
    preemptions: int


class ServerMetrics:
    """Counters, gauges and histograms of one server, in a registry of their own.

    Attributes:
        spec: of guesses; None for a server that makes none (``num_speculative_tokens`` 0).
    """

    def __init__(
        self,
        model: str,
        limits: SchedulerConfig,
        max_model_len: int,
        num_speculative_tokens: int = 0,
    ) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # start time, memory, open files
        self._labels = {"model_name": model, "engine": "0"}
        self._blocks = limits.num_blocks
        most = num_speculative_tokens
        self.spec = SpecMetrics(self.registry, self._labels, most) if most else None
        self._total, self._count = 0.0, 0
        counts = token_buckets(max_model_len)
        self.running = self._gauge("num_requests_running", "Requests with a running slot.")
        self.waiting = self._gauge("num_requests_waiting", "Requests in the queue.")
        self.kv_usage = self._gauge("kv_cache_usage_perc", "KV blocks in use; 1 is all of them.")
        counter = self._counter
        self.prefix_queries = counter("prefix_cache_queries", "Prompt tokens looked up.")
        self.prefix_hits = counter("prefix_cache_hits", "Prompt tokens found in the cache.")
        self.preemptions = counter("num_preemptions", "Times a request lost its blocks.")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens done, cached ones included.")
        self.cached_tokens = counter("prompt_tokens_cached", "Prompt tokens from the cache.")
        self.generation_tokens = counter("generation_tokens", "Tokens put out.")
        ends = self._labelled("request_success", "Requests that ended.", "finished_reason")
        self._success = {
            reason: ends.labels(**self._labels, finished_reason=reason) for reason in REASONS
        }
        refused = self._labelled("admission_rejections", "Requests refused.", "reason")
        self.rejections = refused.labels(**self._labels, reason="max_num_queued_reqs")
        histogram = self._histogram
        self.step_tokens = histogram("iteration_tokens_total", "Tokens per engine step.", _STEP)
        self.ttft = histogram("time_to_first_token_seconds", "Arrival to first token.", _TTFT)
        self.gap = histogram("inter_token_latency_seconds", "Between two tokens.", _GAP)
        self._tpot = histogram(
            "request_time_per_output_token_seconds", "(last - first) / (tokens - 1).", _GAP
        )
        times = {
            "e2e": ("e2e_request_latency_seconds", "Arrival to last token."),
            "queue": ("request_queue_time_seconds", "Arrival to running slot."),
            "inference": ("request_inference_time_seconds", "Running slot to last token."),
            "prefill": ("request_prefill_time_seconds", "Running slot to first token."),
            "decode": ("request_decode_time_seconds", "First to last token."),
        }
        self._times = {key: histogram(*told, _REQUEST) for key, told in times.items()}
        sizes = {
            "prompt": ("request_prompt_tokens", "Prompt tokens of a request.", counts),
            "output": ("request_generation_tokens", "Tokens put out by a request.", counts),
            "most": ("request_params_max_tokens", "Tokens that a request allowed.", counts),
            "computed": ("request_prefill_kv_computed_tokens", "Prompt tokens computed.", counts),
            "preemptions": ("request_num_preemptions", "Preemptions of a request.", _PREEMPTIONS),
        }
        self._sizes = {key: histogram(*told) for key, told in sizes.items()}
        self._config(limits)

    def between_steps(self, now: Snapshot, underway: int) -> None:
        """Set the gauges; ``underway`` requests were handed over and are not seen yet."""
        self.running.set(now.running)
        self.waiting.set(now.waiting + underway)
        self.kv_usage.set(now.used_blocks / self._blocks)

    def ended(self, request: Ended) -> None:
        """A request ran to its end."""
        self._success[request.reason].inc()
        spans = {
            "e2e": request.last - request.arrival,
            "queue": request.scheduled - request.arrival,
            "inference": request.last - request.scheduled,
            "prefill": request.first - request.scheduled,
            "decode": request.last - request.first,
        }
        self._total += spans["e2e"]
        self._count += 1
        for key, seconds in spans.items():
            self._times[key].observe(seconds)
        if request.output > 1:
            self._tpot.observe(spans["decode"] / (request.output - 1))
        sizes = {
            "prompt": request.prompt,
            "output": request.output,
            "most": request.most,
            "computed": request.prompt - request.cached,
            "preemptions": request.preemptions,
        }
        for key, size in sizes.items():
            self._sizes[key].observe(size)

    def given_up(self, reason: str) -> None:
        """A request ended without reaching its end: "abort" or "error"."""
        self._success[reason].inc()

    def mean_latency(self) -> float:
        """Seconds that a request took so far, on average; 1 before the first one has ended."""
        return self._total / self._count if self._count else 1.0

    def text(self) -> bytes:
        """The exposition, in Prometheus' text format."""
        return bytes(generate_latest(self.registry))

    # -- vLLM's names and labels -----------------------------------------------------------------

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(f"vllm:{name}", told, self._labels, registry=self.registry).labels(
            **self._labels
        )

    def _counter(self, name: str, told: str) -> Counter:
        return self._labelled(name, told).labels(**self._labels)

    def _labelled(self, name: str, told: str, *labels: str) -> Counter:
        names = [*self._labels, *labels]
        return Counter(f"vllm:{name}", told, names, registry=self.registry)

    def _histogram(self, name: str, told: str, buckets: Iterable[float]) -> Histogram:
        family = Histogram(
            f"vllm:{name}", told, self._labels, registry=self.registry, buckets=tuple(buckets)
        )
        return family.labels(**self._labels)

    def _config(self, limits: SchedulerConfig) -> None:
        facts = {
            "block_size": str(limits.block_size),
            "num_gpu_blocks": str(limits.num_blocks),
            "enable_prefix_caching": str(limits.enable_prefix_caching),
        }
        labels = {"engine": "0", **facts}
        family = Gauge("vllm:cache_config_info", "The KV cache.", labels, registry=self.registry)
        family.labels(**labels).set(1)
