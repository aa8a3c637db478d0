"""Transports over a wire: a thread of its own moves KV while the engine's steps go on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial

from minilab.core.connector import Finished, KVLoad
from minilab.engine.pd.wire import Moved, Wire

NOBODY = -1
"""In place of a request id: its end interests nobody."""

Job = Callable[[], bool]


class Mover:
    """Runs jobs one after the other in a thread. After one that raises, all fail: the wire is gone.

    Attributes:
        moving: requests whose job has not been reported by ``ended``.
        broken: why the wire carries nothing any more; "" while it does.

    ``ring`` is called, in that thread, after each job.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self.moving: set[int] = set()
        self.broken = ""
        self._ring = ring
        self._jobs: queue.SimpleQueue[tuple[int, Job]] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="pd-wire", daemon=True).start()

    def put(self, request_id: int, job: Job) -> None:
        """Run ``job`` in its turn: True if KV went over, False if not."""
        if request_id != NOBODY:
            self.moving.add(request_id)
        self._jobs.put((request_id, job))

    def ended(self) -> tuple[list[int], list[int]]:
        """(requests whose KV went over, requests whose did not) since the last call."""
        done: list[int] = []
        failed: list[int] = []
        while not self._ended.empty():
            request_id, went = self._ended.get()
            self.moving.discard(request_id)
            (done if went else failed).append(request_id)
        return done, failed

    def _work(self) -> None:
        while True:
            request_id, job = self._jobs.get()
            went = False
            if not self.broken:
                try:
                    went = job()
                except Exception as error:  # gloo has several; each of them means a broken wire
                    self.broken = str(error) or type(error).__name__
            if request_id != NOBODY:
                self._ended.put((request_id, went))
            self._ring()


class Sender:
    """The prefill end."""

    polls = False

    def __init__(self, wire: Wire, ring: Callable[[], None]) -> None:
        self._wire = wire
        self._mover = Mover(ring)

    def send(self, request_id: int, block_ids: Sequence[int]) -> None:
        """The other end asks for these blocks."""
        self._mover.put(request_id, partial(self._wire.send, request_id, list(block_ids)))

    def refuse(self, request_id: int) -> None:
        """It asks for blocks that are gone."""
        self._mover.put(NOBODY, partial(self._wire.refuse, request_id))

    def get_finished(self) -> Finished:
        """See ``core.connector.KVTransport``."""
        sent, failed = self._mover.ended()
        return Finished(sending=sent, failed=failed)

    @property
    def moved(self) -> Moved:
        """What has been sent."""
        return self._wire.moved


class Receiver:
    """The decode end, a ``core.connector.KVTransport``: it asks, then receives in that order.

    ``ask`` tells the other end to send.
    """

    polls = False

    def __init__(self, wire: Wire, ring: Callable[[], None], ask: Callable[[KVLoad], None]) -> None:
        self._wire = wire
        self._ask = ask
        self._mover = Mover(ring)

    def start_load_kv(self, loads: Sequence[KVLoad]) -> None:
        """See ``core.connector.KVTransport``."""
        for load in loads:
            self._ask(load)
            request_id = load.request.id
            self._mover.put(request_id, partial(self._wire.recv, request_id, list(load.block_ids)))

    def is_moving(self, request_id: int) -> bool:
        """Whether somebody may still write to its blocks."""
        return request_id in self._mover.moving

    def get_finished(self) -> Finished:
        """See ``core.connector.KVTransport``."""
        arrived, failed = self._mover.ended()
        return Finished(recving=arrived, failed=failed)

    @property
    def moved(self) -> Moved:
        """What has been received."""
        return self._wire.moved
