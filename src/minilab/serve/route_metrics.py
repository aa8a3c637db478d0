"""RouteMetrics: what the proxy shows under /metrics, replica by replica."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from minilab.serve.route_state import Fleet

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60)


class RouteMetrics:
    """Counters of one proxy, in a registry of their own; replicas are named by their URL."""

    def __init__(self, replicas: Sequence[str]) -> None:
        self.registry = CollectorRegistry()
        self._replicas = replicas
        by = ("replica",)
        self.requests = self._counter("requests", "Placements by how they ended.", *by, "outcome")
        self.retries = self._counter("retries", "Placements that replaced a failed one.")
        self.refused = self._counter("refused", "Requests that no replica could take.")
        self.prompt = self._counter("prompt_tokens", "Estimated prompt tokens sent.", *by)
        self.expected = self._counter(
            "expected_hit_tokens", "Of those, tokens that the replica should have cached.", *by
        )
        self.up = self._gauge("replica_up", "1 while the replica answers.")
        self.in_flight = self._gauge("in_flight", "Requests of this proxy on the replica.")
        self.foreign = self._gauge("foreign_requests", "Requests on it that are not ours.")
        self.kv_usage = self._gauge("kv_cache_usage_perc", "As last scraped; 1 is all of it.")
        self.hit_rate = self._gauge("prefix_cache_hit_rate", "Hits / queries, as last scraped.")
        self.first_byte = Histogram(
            "minilab_route:time_to_first_byte_seconds",
            "Arrival to first byte passed on.",
            registry=self.registry,
            buckets=_SECONDS,
        )

    def text(self, fleet: Fleet) -> bytes:
        """The exposition."""
        for name, view in zip(self._replicas, fleet.views, strict=True):
            self.up.labels(name).set(view.up)
            self.in_flight.labels(name).set(view.in_flight)
            self.foreign.labels(name).set(view.foreign)
            self.kv_usage.labels(name).set(view.usage)
        return bytes(generate_latest(self.registry))

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(f"minilab_route:{name}", told, labels, registry=self.registry)

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(f"minilab_route:{name}", told, ("replica",), registry=self.registry)
