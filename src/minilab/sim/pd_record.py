"""PdRecorder: the record of two pools, with every second of a request charged to one stage.

queue          arrival (client) to the first step of the prompt
prefill        to the end of the prompt
transfer_wait  to the first byte on the wire: no blocks on the decode side yet, or no turn
transfer       to the last byte (with overlap: what is left of it after the prompt)
decode_wait    to a running slot on the decode side, which is given between two steps
decode         to the end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minilab.core.instance import Instance
from minilab.core.plan import StepPlan
from minilab.core.request import RequestState
from minilab.facts.runlog import RunLog
from minilab.facts.ticks import TICKS_PER_SECOND
from minilab.recorder import Recorder
from minilab.sim.pd_handoff import Handoff


class PdRecorder(Recorder):
    """Keeps the hand-offs by request id.

    ``started`` is told of a sender whose prompt begins to be computed.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        num_prefill: int,
        started: Callable[[Handoff, int], None] | None = None,
    ) -> None:
        super().__init__(instances)
        self.handoffs: dict[int, Handoff] = {}
        self._num_prefill = num_prefill
        self._started = started

    def planned(self, index: int, plan: StepPlan, now: int) -> None:
        """See ``Recorder``."""
        super().planned(index, plan, now)
        handoffs = self.handoffs
        if index >= self._num_prefill:
            for request in plan.admitted:
                handoff = handoffs.get(request.id)
                if handoff is not None and handoff.joined_at < 0:
                    handoff.joined_at = now
        elif self._started is not None:
            for request in plan.admitted:
                if request.id in handoffs:
                    self._started(handoffs[request.id], now)

    def to_runlog(self, states: Sequence[RequestState], meta: dict[str, Any]) -> RunLog:
        """See ``Recorder``; KV usage is a share of each instance's own pool."""
        log = super().to_runlog(states, meta)
        if log.series is not None:
            schedulers: list[Any] = [instance.scheduler for instance in self.instances]
            blocks = np.array([scheduler.pool.num_blocks for scheduler in schedulers])
            used = [run[6] for instance in self.instances for run in instance.runs]
            log.series["kv_usage"] = np.array(used, dtype=np.int64) / blocks[log.series["instance"]]
        return log

    def _request_columns(self, states: Sequence[RequestState]) -> dict[str, Any]:
        columns = super()._request_columns(states)
        rows, times = [], []
        for row, state in enumerate(states):
            handoff = self.handoffs.get(state.id)
            if handoff is None or state is not handoff.receiver:
                continue
            rows.append(row)
            times.append((handoff.ready_at, handoff.begun_at, handoff.ended_at, handoff.joined_at))
        if not rows:
            return columns
        at = np.array(rows)
        ticks = np.array(times, dtype=np.int64)
        seconds = np.where(ticks < 0, np.nan, ticks / TICKS_PER_SECOND)
        ready, begun, ended, joined = seconds.T
        begun = np.maximum(begun, ready)  # with overlap it began before the prompt was done
        columns["prefill"][at] = ready - columns["scheduled"][at]
        spans = {"transfer_wait": begun - ready, "transfer": ended - begun}
        for name, values in {**spans, "decode_wait": joined - ended}.items():
            columns[name] = np.full(len(states), np.nan)
            columns[name][at] = values
        columns["decode"][at] = columns["finish"][at] - joined
        return columns


class LateTokenRecorder(PdRecorder):
    """For a decode side that puts out the first token: the sender's is thrown away."""

    def _close(self, index: int, request: RequestState) -> None:
        if request.hold_blocks:
            request.span_time = -1
        else:
            super()._close(index, request)
