"""Cluster: instances behind a router on one virtual clock.

The serving core (scheduler, blocks, prefix index, router) is the real one; only time is simulated.
Two kinds of events exist: something from outside (arrival, abort, whatever a caller puts in with
``at``) and the end of an instance's run. Nobody plans a step before all that happens at a tick has
happened, outside events first, so that the order of instances decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any

from minilab.core.instance import Instance
from minilab.core.instance_view import InstanceView
from minilab.core.request import REJECTED, RequestState
from minilab.core.router import REJECT, Router
from minilab.core.router_load import RoundRobin
from minilab.facts.request import Request
from minilab.facts.ticks import to_ticks
from minilab.recorder import Recorder
from minilab.sim.clients import Clients


class Cluster:
    """Runs requests through instances and keeps the record.

    Args:
        instances: at least one; each has its own scheduler.
        router: chooses an instance for each arrival.
        request_overhead: seconds between a client's send and the scheduler seeing the request
            (tokenising, HTTP).
        concurrency: closed loop: at most this many requests are outstanding; ``None``: open loop.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        router: Router | None = None,
        *,
        request_overhead: float = 0.0,
        concurrency: int | None = None,
    ) -> None:
        if not instances:
            raise ValueError("a cluster needs at least 1 instance, got 0")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; it must be at least 1")
        self.instances = list(instances)
        self.router = router or RoundRobin()
        self.recorder = Recorder(self.instances)
        self.states: dict[int, RequestState] = {}
        self.views = [InstanceView(instance) for instance in instances]
        self.now = 0
        self._overhead = to_ticks(request_overhead)
        self.clients = Clients(self, self._overhead, concurrency)
        self._outside: list[tuple[int, int, Callable[[], None]]] = []
        self._ends: list[tuple[int, int]] = []
        self._idle: set[int] = set()
        self._serial = 0
        self._arrivals_left = False
        for instance in self.instances:
            tiers: Any = getattr(instance.scheduler, "tiers", None)
            if tiers is not None:
                tiers.clock = lambda: self.now
        self._tell: Any = getattr(self.router, "ended", None)
        self._watches = self._tell is not None

    # -- putting things in -----------------------------------------------------------------------

    def at(self, tick: int, action: Callable[[], None]) -> None:
        """Call ``action`` at ``tick``, before any step that ends then."""
        self._serial += 1
        heappush(self._outside, (tick, self._serial, action))

    def abort(self, request_id: int, tick: int) -> None:
        """Have the client give up on a request at ``tick`` (no effect if it is done by then)."""
        self.at(tick, lambda: self._abort(request_id))

    def run(self, requests: Sequence[Request]) -> Recorder:
        """Simulate until every request has ended or can get no further.

        Requests must be in order of arrival. Arrivals that depend on another request's end
        (``after``) or on a free slot (closed loop) are inserted as they come up.
        """
        arrivals = self.clients.release(requests)
        outside, ends, idle, instances = self._outside, self._ends, self._idle, self.instances
        self._arrivals_left = bool(arrivals)
        recorder = self.recorder
        never = 1 << 62
        overhead = self._overhead
        watches = self._watches or self.clients.watch
        period = to_ticks(getattr(self.router, "period", 0.0))
        if period:
            self._scrape(period)
        position, count = 0, len(arrivals)
        next_arrival = to_ticks(arrivals[0].arrival) + overhead if count else never
        while True:
            end = ends[0][0] if ends else never
            event = outside[0][0] if outside else never
            if idle and end > self.now < event and self.now < next_arrival:
                for index in sorted(idle):
                    self._begin(index)
                idle.clear()
                continue
            now = next_arrival if next_arrival < event else event
            if now <= end:
                if now == never:
                    break
                self.now = now
                while event == now:
                    heappop(outside)[2]()
                    event = outside[0][0] if outside else never
                while next_arrival == now:
                    self.arrive(arrivals[position])
                    position += 1
                    self._arrivals_left = position < count
                    next_arrival = (
                        to_ticks(arrivals[position].arrival) + overhead
                        if position < count
                        else never
                    )
                continue
            now, index = heappop(ends)
            instance = instances[index]
            if instance.until != now:
                continue  # the run was cut; its new end is in the heap too
            self.now = now
            result = instance.complete()
            if result.started or result.finished or instance.stalled:
                recorder.completed(index, result, now)
            if instance.pending:
                for action in instance.pending:
                    action()
                instance.pending.clear()
            if watches and result.finished:
                self._finished(index, result.finished)
            if idle or (ends and ends[0][0] == now) or (outside and outside[0][0] == now):
                idle.add(index)
                continue
            plan = instance.begin(now)
            if plan.admitted or plan.preempted:
                recorder.planned(index, plan, now)
            if plan.loads:
                self._load(index, plan.loads)
            if instance.until >= 0:
                heappush(ends, (instance.until, index))
        return recorder

    def _begin(self, index: int) -> None:
        instance = self.instances[index]
        plan = instance.begin(self.now)
        if plan.admitted or plan.preempted:
            self.recorder.planned(index, plan, self.now)
        if plan.loads:
            self._load(index, plan.loads)
        if instance.until >= 0:
            heappush(self._ends, (instance.until, index))

    def _load(self, index: int, requests: Sequence[RequestState]) -> None:
        """KV is on its way from a cache tier; its arrival counts from the next step on."""
        scheduler: Any = self.instances[index].scheduler

        def arrived(request_id: int) -> None:
            if request_id in scheduler.remote.receiving:  # not given up meanwhile
                self.interrupt(index, lambda: land(request_id))

        def land(request_id: int) -> None:
            if request_id in scheduler.remote.receiving:
                scheduler.remote.finish_loading(request_id)

        for request in requests:
            end = scheduler.tiers.start_load(request)
            self.at(end, partial(arrived, request.id))

    # -- arrivals --------------------------------------------------------------------------------

    def _finished(self, index: int, states: Sequence[RequestState]) -> None:
        """Requests ended at an instance, between two of its steps; asked only of who watches."""
        for state in states:
            self._ended(state)

    def _ended(self, state: RequestState) -> None:
        """A placed request has ended: tell a router that counts, and the clients."""
        if self._tell is not None:
            self._tell(state, self.recorder.placed_on[state.id])
        self.clients.ended(state.id)

    def arrive(self, request: Request) -> None:
        """A request is there: place it, or refuse it."""
        state = RequestState(request)
        self.states[state.id] = state
        state.queued_at = self.now
        index = self.router.choose(state, self.views)
        if index == REJECT:
            state.status = REJECTED
            self.recorder.finished_at[state.id] = self.now
            self.clients.ended(state.id)
            return
        self.views[index].place(state)
        self.recorder.placed_on[state.id] = index
        self.submit(state, index)

    def _scrape(self, period: int) -> None:
        """Let the router read the figures now and every ``period`` ticks while work is left."""
        router: Any = self.router
        router.scrape(self.views, self.now)
        if self._arrivals_left or self._outside or self._ends:
            self.at(self.now + period, lambda: self._scrape(period))

    def submit(self, state: RequestState, index: int) -> None:
        """Queue ``state`` at an instance and wake or cut it if that could change its plan."""
        instance = self.instances[index]
        disturbs = instance.scheduler.accepts_now
        if not instance.scheduler.add(state):
            self.recorder.finished_at[state.id] = self.now
            self._ended(state)
            return
        if instance.until < 0:
            self._idle.add(index)
        elif disturbs and instance.cut(self.now):
            heappush(self._ends, (instance.until, index))

    def interrupt(self, index: int, action: Callable[[], None]) -> None:
        """Do what takes or frees blocks of an instance: between two steps, as an engine would."""
        instance = self.instances[index]
        if instance.until < 0:
            action()
            self._idle.add(index)
            return
        instance.pending.append(action)
        if instance.cut(self.now):
            heappush(self._ends, (instance.until, index))

    def _abort(self, request_id: int) -> None:
        state = self.states.get(request_id)
        if state is None:
            return  # it has not arrived, so there is nothing to give up
        index = self.recorder.placed_on[request_id]

        def give_up() -> None:
            if request_id not in self.recorder.finished_at:
                self.recorder.aborted(index, state, self.now)
                self.instances[index].scheduler.abort(state)
                self._ended(state)

        self.interrupt(index, give_up)
