"""Scrapes from Prometheus's own answers: the JSON of /api/v1/query_range and /api/v1/query."""

from __future__ import annotations

from typing import Any

from minilab.judge.advisor.exposition import Sample, Scrape

MOST_POINTS = 60
"""Points of time kept of a range, evenly spread, the first and the last among them."""


def is_prometheus(value: Any) -> bool:
    """Whether a JSON value looks like an answer of Prometheus's HTTP API."""
    data = value.get("data") if isinstance(value, dict) else None
    return isinstance(data, dict) and data.get("resultType") in ("matrix", "vector")


def scrapes_of(answers: list[Any]) -> dict[str, list[Scrape]]:
    """Scrapes in order of time, by ``instance``; several answers (one per query) are put together.

    Samples that are no numbers are left out and counted as unread.
    """
    found: dict[str, dict[float, list[Sample]]] = {}
    bad: dict[str, int] = {}
    for answer in answers:
        for series in answer["data"].get("result") or []:
            labels = series.get("metric") if isinstance(series, dict) else None
            if not isinstance(labels, dict):
                continue
            words = {str(key): str(text) for key, text in labels.items()}
            name, where = words.pop("__name__", ""), words.get("instance", "")
            for point in series.get("values") or [series.get("value")]:
                sample = _sample(name, words, point)
                if sample is None:
                    bad[where] = bad.get(where, 0) + 1
                else:
                    found.setdefault(where, {}).setdefault(sample[0], []).append(sample[1])
    return {where: _spread(times, bad.get(where, 0)) for where, times in found.items()}


def _sample(name: str, labels: dict[str, str], point: Any) -> tuple[float, Sample] | None:
    try:
        time, text = point
        value = float(text)
        when = float(time)
    except (TypeError, ValueError):
        return None
    if not name or value != value:
        return None
    return when, Sample(name, labels, value)


def _spread(times: dict[float, list[Sample]], bad: int) -> list[Scrape]:
    order = sorted(times)
    step = max(1, -(-len(order) // MOST_POINTS))
    kept = order[::step]
    if kept[-1] != order[-1]:
        kept.append(order[-1])
    scrapes = []
    for when in kept:
        scrape = Scrape()
        for sample in times[when]:
            scrape.samples.setdefault(sample.name, []).append(sample)
        scrapes.append(scrape)
    scrapes[-1].num_unread = bad
    if bad:
        scrapes[-1].unread = ["a point that is no number"]
    return scrapes
