"""Recorder: writes down what instances did, cheaply, and turns it into a RunLog.

Simulator and engine, the two executors, share it; so it stands on a floor of its own below both.
No token times are kept. An instance's runs are a table, and a request remembers which rows of it
it decoded through; every gap can be computed from that exactly (``facts.gaps.GapRuns``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from minilab.core.instance import Instance, Run
from minilab.core.plan import StepPlan, StepResult
from minilab.core.request import ABORTED, FINISHED, HELD, REJECTED, RequestState
from minilab.facts.gaps import GapRuns
from minilab.facts.runlog import RunLog
from minilab.facts.ticks import TICKS_PER_SECOND

Span = tuple[int, int, int, int, int, int]
"""(request id, instance, token time, first run, end of runs, extra tokens)."""


class Recorder:
    """The record of one run of a cluster. Times are ticks.

    Attributes:
        instances: their ``runs`` are the table of steps.
        spans: stretches in which a request decoded without interruption.
        finished_at: end of each request that ended, by id.
        placed_on: instance of each request that was placed, by id.
    """

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.instances = instances
        self.spans: list[Span] = []
        self.finished_at: dict[int, int] = {}
        self.placed_on: dict[int, int] = {}

    def planned(self, index: int, plan: StepPlan, now: int) -> None:
        """A step begins: who left the queue for it, and who lost its blocks."""
        for request in plan.preempted:
            if request.span_time >= 0:
                self._close(index, request)
        for request in plan.admitted:
            if request.scheduled_at < 0:
                request.scheduled_at = now
            if request.decoding:  # its KV and first token came from elsewhere
                request.span_time = request.first_token_at
                request.span_from = len(self.instances[index].runs)

    def completed(self, index: int, result: StepResult, now: int) -> None:
        """A run is over: first tokens and ends."""
        for request in result.started:
            if request.first_token_at < 0:
                request.first_token_at = now
            request.span_time = now
            request.span_from = len(self.instances[index].runs)
        for request in result.finished:
            self._close(index, request)
            self.finished_at[request.id] = now
        for request in self.instances[index].stalled:
            self._stall(index, request)

    def _stall(self, index: int, request: RequestState) -> None:
        """A decode made no progress in the last run: its next gap began before that run."""
        if request.span_time < 0:
            return
        runs = self.instances[index].runs
        through = [run for run in runs[request.span_from : -1] if run[4]]
        token_time = _end(through[-1]) if through else request.span_time
        self.spans.append(
            (
                request.id,
                index,
                request.span_time,
                request.span_from,
                len(runs) - 1,
                request.zeros,
            )
        )
        request.span_time, request.span_from, request.zeros = token_time, len(runs), 0

    def _close(self, index: int, request: RequestState) -> None:
        self.spans.append(
            (
                request.id,
                index,
                request.span_time,
                request.span_from,
                len(self.instances[index].runs),
                request.zeros,
            )
        )
        request.span_time = -1
        request.zeros = 0

    def aborted(self, index: int, request: RequestState, now: int) -> None:
        """A request was given up."""
        if request.span_time >= 0:
            self._close(index, request)
        self.finished_at[request.id] = now

    # -- to a run log -----------------------------------------------------------------------------

    def to_runlog(self, states: Sequence[RequestState], meta: dict[str, Any]) -> RunLog:
        """The run log of all ``states``, in order of request id."""
        runs = self._run_columns()
        return RunLog(
            requests=self._request_columns(states),
            gaps=GapRuns(runs, self._span_columns(states), len(states)),
            series=_series(runs, meta.get("num_blocks") or 1),
            meta=meta,
        )

    def _request_columns(self, states: Sequence[RequestState]) -> dict[str, Any]:
        specs: list[Any] = [state.request for state in states]
        finished = self.finished_at

        def integers(values: list[int]) -> Any:
            return np.array(values, dtype=np.int64)

        def times(ticks: list[int]) -> Any:
            seconds = integers(ticks) / TICKS_PER_SECOND
            return np.where(integers(ticks) < 0, np.nan, seconds)

        arrival = np.array([spec.arrival for spec in specs], dtype=np.float64)
        scheduled = times([state.scheduled_at for state in states])
        first = times([state.first_token_at for state in states])
        end = times([finished.get(state.id, -1) for state in states])
        nothing = np.full(len(states), np.nan)
        return {
            "id": integers([state.id for state in states]),
            "tenant": np.array([spec.tenant for spec in specs], dtype=object),
            "slo_class": np.array([spec.slo_class for spec in specs], dtype=object),
            "arrival": arrival,
            "queued": times([state.queued_at for state in states]),
            "scheduled": scheduled,
            "first_token": first,
            "finish": end,
            "prompt_tokens": integers([state.num_prompt_tokens for state in states]),
            "output_tokens": integers([state.num_output_tokens for state in states]),
            "cached_tokens": integers([max(0, state.num_cached_tokens) for state in states]),
            "preemptions": integers([state.num_preemptions for state in states]),
            "status": np.array([_status(state) for state in states], dtype=object),
            "instance": integers([self.placed_on.get(state.id, -1) for state in states]),
            "queue": scheduled - arrival,
            "prefill": first - scheduled,
            "transfer_wait": nothing,
            "transfer": nothing,
            "decode_wait": nothing,
            "decode": end - first,
        }

    def _run_columns(self) -> dict[str, Any]:
        """The runs of all instances, one after the other (columns of ``GapRuns``)."""
        parts = [
            np.array(instance.runs, dtype=np.int64).reshape(-1, 7) for instance in self.instances
        ]
        table = np.concatenate(parts)
        names = ("start", "first", "slope", "n", "batch", "waiting", "used_blocks")
        columns = {name: table[:, i].copy() for i, name in enumerate(names)}
        columns["instance"] = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return columns

    def _span_columns(self, states: Sequence[RequestState]) -> dict[str, Any]:
        """The spans of all requests, with rows of the joint table of runs."""
        row_of = {state.id: row for row, state in enumerate(states)}
        base = [0, *accumulate(len(instance.runs) for instance in self.instances)]
        spans = sorted(
            (row_of[request], time, base[index] + begin, base[index] + end, zeros)
            for request, index, time, begin, end, zeros in self.spans
        )
        columns = np.array(spans, dtype=np.int64).reshape(-1, 5)
        keys = ("request", "token_time", "run_from", "run_to", "zeros")
        return {key: columns[:, i].copy() for i, key in enumerate(keys)}


def _series(runs: dict[str, Any], num_blocks: int) -> dict[str, Any]:
    """Load at the end of each run: time, instance, decodes, queue length, KV use, busy."""
    n = runs["n"]
    end = runs["start"] + n * runs["first"] + runs["slope"] * (n * (n - 1) // 2)
    return {
        "t": end / TICKS_PER_SECOND,
        "instance": runs["instance"],
        "running": runs["batch"],
        "waiting": runs["waiting"],
        "kv_usage": runs["used_blocks"] / num_blocks,
        "busy": np.ones(len(end)),
    }


def _end(run: Run) -> int:
    start, first, slope, steps = run[:4]
    return start + steps * first + slope * (steps * (steps - 1) // 2)


def _status(state: RequestState) -> str:
    """Status in a run log's words; who neither ended nor was refused got stuck: failed."""
    if state.status in (FINISHED, HELD):
        return "finished"
    return {ABORTED: "aborted", REJECTED: "rejected"}.get(state.status, "failed")
