"""Run logs to test with, built by the tests that share them.

Each fixture gives the function that builds: a test changes its log, so it needs its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.ticks import TICKS_PER_SECOND


@pytest.fixture(scope="session", name="small_log")
def small_log_builder() -> Callable[..., RunLog]:
    """``small_log("lists" | "runs" | None)``: three requests, their gaps in that form."""
    return small_log


@pytest.fixture(scope="session", name="served")
def served_builder() -> Callable[..., RunLog]:
    """``served([(arrival, ttft, gaps), ...], slo_class=[...])``: finished requests."""
    return served


@pytest.fixture(scope="session", name="three")
def three_builder() -> Callable[..., RunLog]:
    """``three()``: a smooth request, one with a stall, one of a single token."""
    return three


def table(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    values = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    return {name: values[:, i].copy() for i, name in enumerate(names)}


def small_log(gaps: str | None = "lists") -> RunLog:
    """Three requests: four tokens, one token, rejected."""
    requests = blank_requests(3)
    requests["id"] = np.array([3, 7, 8])
    requests["tenant"][:] = ["acme", "", "ünï"]
    requests["slo_class"][:] = ["chat", "chat", "batch"]
    requests["status"][:] = ["finished", "finished", "rejected"]
    requests["arrival"] = np.array([0.1, 0.5, 0.7])
    requests["queued"] = np.array([0.1, 0.5, np.nan])
    requests["scheduled"] = np.array([0.2, 0.5, np.nan])
    requests["first_token"] = np.array([1.0, 1.5, np.nan])
    requests["finish"] = np.array([4.0, 1.5, 0.7])
    requests["prompt_tokens"] = np.array([10, 20, 30])
    requests["output_tokens"] = np.array([4, 1, 0])
    requests["instance"] = np.array([0, 1, -1])
    requests["queue"] = np.array([0.1, 0.0, np.nan])
    second = TICKS_PER_SECOND
    runs = table(RUN_COLUMNS, [(second, second, 0, 3, 1, 0, 0, 9)])
    spans = table(SPAN_COLUMNS, [(0, second, 0, 1, 0), (1, second, 1, 1, 0)])
    chosen = {
        None: None,
        "lists": GapLists.of([[1.0, 1.0, 1.0], [], []]),
        "runs": GapRuns(runs, spans, 3),
    }[gaps]
    series = {
        "t": np.array([0.0, 1.0]),
        "instance": np.array([0, 1]),
        "running": np.array([1, 2]),
        "waiting": np.array([0, 1]),
        "kv_usage": np.array([0.25, 0.5]),
        "busy": np.array([1.0, np.nan]),
    }
    meta = {"seed": 3, "config": {"gpu": "h100"}, "data": {"kind": "synthetic"}}
    return RunLog(requests, chosen, series, meta)


def served(rows: list[tuple[float, float, list[float]]], **labels: list[str]) -> RunLog:
    """A finished request per (arrival, ttft, gaps); columns may be changed afterwards."""
    requests = blank_requests(len(rows))
    requests["arrival"] = np.array([row[0] for row in rows], dtype=float)
    requests["queued"] = requests["arrival"].copy()
    requests["scheduled"] = requests["arrival"] + np.array([row[1] / 2 for row in rows])
    requests["first_token"] = requests["arrival"] + np.array([row[1] for row in rows])
    requests["finish"] = requests["first_token"] + np.array([math.fsum(row[2]) for row in rows])
    requests["output_tokens"] = np.array([len(row[2]) + 1 for row in rows], dtype=np.int64)
    requests["prompt_tokens"] = np.arange(1, len(rows) + 1) * 100
    requests["status"][:] = "finished"
    for name, values in labels.items():
        requests[name][:] = values
    return RunLog(requests, GapLists.of([row[2] for row in rows])).check()


def three() -> RunLog:
    """Smooth; one stall; one token."""
    return served([(0.0, 0.2, [0.01] * 200), (1.0, 0.4, [0.01] * 9 + [0.5]), (2.0, 0.6, [])])
