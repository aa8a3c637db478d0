"""Both engines of a split in one process, turned by hand, with a wire that tests can cut.

Channels, workers, schedulers and movers are the real ones; only torch.distributed is replaced.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from driving import check

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.pd.channel import Channel, Message
from minilab.engine.pd.decode import DecodeWorker
from minilab.engine.pd.packing import Gathered
from minilab.engine.pd.prefill import PrefillWorker
from minilab.engine.pd.settings import PdSettings
from minilab.engine.pd.transport import Receiver, Sender
from minilab.engine.pd.wire import REFUSED, Moved
from minilab.engine.pd.worker import Worker
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights

WEIGHTS = random_weights(TINY, 5)
ROOMY = SchedulerConfig(64, 4, max_num_batched_tokens=64, max_num_seqs=8)
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
ROLES = ("prefill", "decode")
CPU = torch.device("cpu")


class QueueWire:
    """``Wire`` over a queue; ``cut`` breaks it, ``hold`` keeps what is sent until it is let go."""

    def __init__(
        self, llm: LLM, line: queue.SimpleQueue[Any], gate: queue.SimpleQueue[str]
    ) -> None:
        self.moved = Moved()
        self._packing = Gathered(llm.executor.model.kv_cache, CPU)
        self._line, self._gate = line, gate

    def send(self, request_id: int, block_ids: Sequence[int]) -> bool:
        if self._gate.get(timeout=20) == "cut":
            self._line.put(None)
            raise RuntimeError("cut")
        self._line.put(
            (request_id, len(block_ids), [part.clone() for part in self._packing.pack(block_ids)])
        )
        return True

    def refuse(self, request_id: int) -> bool:
        self._line.put((request_id, REFUSED, []))
        return False

    def recv(self, request_id: int, block_ids: Sequence[int]) -> bool:
        came = self._line.get(timeout=20)
        if came is None:
            raise RuntimeError("cut")
        found, count, parts = came
        assert found == request_id
        if count == REFUSED:
            return False
        self._packing.unpack(parts, block_ids)
        self.moved.add(count, parts, 0.0)
        return True


class Pair:
    """A prefill and a decode worker; ``self`` plays the proxy.

    Attributes:
        gate: one word for each transfer: "go" or "cut". heard: messages of each role so far.
    """

    def __init__(self, limits: SchedulerConfig = ROOMY, **settings: Any) -> None:
        self.settings = PdSettings(prefill=limits, decode=limits, **settings)
        self.gate: queue.SimpleQueue[str] = queue.SimpleQueue()
        line: queue.SimpleQueue[Any] = queue.SimpleQueue()
        ours, theirs = zip(Channel.pair(), Channel.pair(), strict=True)
        self.proxy: dict[str, Channel] = dict(zip(ROLES, ours, strict=True))
        peer, other = Channel.pair()
        llms = [LLM(TINY, WEIGHTS, limits) for _ in range(2)]
        self.prefill = PrefillWorker(llms[0], self.settings, Channel(theirs[0]), peer)
        self.decode = DecodeWorker(llms[1], self.settings, Channel(theirs[1]), Channel(other))
        wires: list[Any] = [QueueWire(llm, line, self.gate) for llm in llms]
        self.workers: dict[str, Worker] = {"prefill": self.prefill, "decode": self.decode}
        self.prefill.transport = Sender(wires[0], self.prefill.bell.ring)
        self.decode.transport = Receiver(wires[1], self.decode.bell.ring, self.decode.ask)
        self._taken: list[int] = []
        self.heard: dict[str, list[Message]] = {"prefill": [], "decode": []}

    def fill_decode_pool(self, leave: int = 0) -> None:
        """Somebody else takes all blocks of the decode side but ``leave``, until ``empty_it``."""
        pool = self.decode.llm.scheduler.pool
        self._taken = pool.take(pool.available - leave)

    def empty_it(self) -> None:
        """They are given back."""
        self.decode.llm.scheduler.pool.release(self._taken, [])
        self._taken = []

    def ask(self, number: int, prompt: list[int], params: SamplingParams = GREEDY) -> None:
        """Give the prefill worker a prompt."""
        self.proxy["prefill"].send(
            "prefill", id=number, tokens=prompt, params=asdict(params), salt=None
        )

    def turn(self, count: int = 1, roles: Sequence[str] = ROLES) -> None:
        """So many turns of each in alternation; the house rules are checked after each."""
        for _ in range(count):
            for role in roles:
                worker = self.workers[role]
                worker.turn()
                if not self._taken:
                    check(worker.llm.scheduler)
        for role, channel in self.proxy.items():
            news = channel.receive()
            self.heard[role] += [message for message in news if message["op"] != "alive"]

    def until(self, role: str, op: str, roles: Sequence[str] = ROLES) -> Message:
        """Turn until ``role`` says ``op``; that message. By the clock: leases end by it, too."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for message in self.heard[role]:
                if message["op"] == op:
                    self.heard[role].remove(message)
                    return message
            self.turn(1, roles)
        raise AssertionError(f"{role} never said {op}: {self.heard}")

    def hand_over(self, number: int, prompt: list[int], params: SamplingParams = GREEDY) -> None:
        """Tell the decode worker of a prompt that the prefill worker has computed."""
        ready = self.until("prefill", "prefilled")
        assert ready["id"] == number
        self.proxy["decode"].send(
            "decode",
            id=number,
            tokens=prompt,
            params=asdict(params),
            salt=None,
            first_token=ready["first_token"],
            kv_transfer_params=ready["kv_transfer_params"],
        )

    def used(self) -> tuple[int, int]:
        """Blocks in use at the two ends."""
        return self.prefill.llm.scheduler.pool.used, self.decode.llm.scheduler.pool.used

    def wait_moved(self) -> None:
        """Until no transfer is under way and both ends know."""
        for _ in range(4000):
            self.turn()
            if not self.decode.transport.is_moving(0) and not self.prefill.connector.remote.sending:
                return
        raise AssertionError("a transfer never ended")


def plain(prompt: list[int], params: SamplingParams = GREEDY) -> list[int]:
    """What one engine says."""
    llm = LLM(TINY, WEIGHTS, replace(ROOMY, enable_prefix_caching=False))
    return llm.generate([prompt], params)[0].token_ids
