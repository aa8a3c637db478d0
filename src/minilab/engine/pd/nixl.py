"""Transports over NIXL: the decode process reads the prefill process's blocks where they lie.

Optional: ``pip install 'minilab[nixl]'``. The prefill end does nothing but register its cache; a
note that arrives with the last byte says that the blocks are free. There is no gathering: each
block of each layer is a descriptor, and NIXL's backend (UCX) sees to many at once.
"""

from __future__ import annotations

import base64
import importlib.util
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from minilab.core.connector import Finished, KVLoad
from minilab.engine.pd.packing import BLOCKS
from minilab.engine.pd.wire import Moved
from minilab.facts.errors import InputError


class Handshake(NamedTuple):
    """What the prefill end tells about its cache: NIXL's metadata, an address, a device, a size."""

    metadata: str
    address: int
    device: int
    num_blocks: int


def new_agent(name: str) -> Any:
    """A NIXL agent that talks through UCX.

    Raises:
        InputError: NIXL is not installed.
    """
    if importlib.util.find_spec("nixl") is None:
        raise InputError(
            "transport nixl needs nixl; pip install 'minilab[nixl]', or use transport gloo"
        )
    from nixl._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(True, False, 0, backends=["UCX"]))


def _device_id(tensor: torch.Tensor) -> int:
    return max(0, tensor.get_device())


class NixlSender:
    """The prefill end: its cache may be read."""

    polls = True

    def __init__(self, agent: Any, kv_cache: torch.Tensor) -> None:
        self.moved = Moved()
        self._agent = agent
        self._cache = kv_cache
        agent.register_memory(kv_cache)

    def handshake(self) -> Handshake:
        """For the other end."""
        metadata = base64.b64encode(self._agent.get_agent_metadata()).decode()
        cache = self._cache
        return Handshake(metadata, cache.data_ptr(), _device_id(cache), cache.shape[BLOCKS])

    def send(self, request_id: int, block_ids: Sequence[int]) -> None:
        """Nobody asks: the other end reads."""

    def refuse(self, request_id: int) -> None:
        """Nobody asks."""

    def get_finished(self) -> Finished:
        """Requests whose last byte was read."""
        notes = self._agent.get_new_notifs()
        sent = [int(note) for each in notes.values() for note in each]
        self.moved.transfers += len(sent)
        return Finished(sending=sent)


class _Read(NamedTuple):
    handle: Any
    begun: float
    blocks: int
    pieces: int


class NixlReceiver:
    """The decode end, a ``core.connector.KVTransport``. ``timeout``: seconds for a request."""

    polls = True

    def __init__(self, agent: Any, kv_cache: torch.Tensor, timeout: float) -> None:
        self.moved = Moved()
        self._agent = agent
        self._cache = kv_cache
        self._timeout = timeout
        self._kind = "cuda" if kv_cache.is_cuda else "cpu"
        self._reads: dict[int, _Read] = {}
        self._refused: list[int] = []
        self._remote: tuple[str, Handshake] | None = None
        agent.register_memory(kv_cache)

    def meet(self, handshake: Handshake) -> None:
        """Learn where the other end's blocks lie."""
        name = self._agent.add_remote_agent(base64.b64decode(handshake.metadata))
        self._remote = (name.decode() if isinstance(name, bytes) else name, handshake)

    def start_load_kv(self, loads: Sequence[KVLoad]) -> None:
        """See ``core.connector.KVTransport``."""
        for load in loads:
            try:
                self._reads[load.request.id] = self._begin(load)
            except Exception:  # NIXL has an exception for each of its states
                self._refused.append(load.request.id)

    def is_moving(self, request_id: int) -> bool:
        """Whether somebody may still write to its blocks."""
        return request_id in self._reads

    def get_finished(self) -> Finished:
        """See ``core.connector.KVTransport``."""
        done: list[int] = []
        failed, self._refused = self._refused, []
        now = time.perf_counter()
        for request_id, read in [*self._reads.items()]:
            state = self._state(read)
            if state == "PROC" and now - read.begun < self._timeout:
                continue
            del self._reads[request_id]
            self._agent.release_xfer_handle(read.handle)
            (done if state == "DONE" else failed).append(request_id)
            if state == "DONE":
                self._count(read, now)
        return Finished(recving=done, failed=failed)

    def _begin(self, load: KVLoad) -> _Read:
        assert self._remote is not None, "meet() first"
        name, there = self._remote
        cache = self._cache
        here = Handshake("", cache.data_ptr(), _device_id(cache), cache.shape[BLOCKS])
        to = self._pieces(here, load.block_ids)
        source = self._pieces(there, load.remote_block_ids)
        handle = self._agent.initialize_xfer(
            "READ",
            self._agent.get_xfer_descs(to, mem_type=self._kind),
            self._agent.get_xfer_descs(source, mem_type=self._kind),
            name,
            str(load.request.id).encode(),
        )
        begun = time.perf_counter()
        self._agent.transfer(handle)
        return _Read(handle, begun, load.num_blocks, len(to))

    def _state(self, read: _Read) -> str:
        try:
            return str(self._agent.check_xfer_state(read.handle))
        except Exception:  # as above
            return "ERR"

    def _pieces(self, at: Handshake, block_ids: Sequence[int]) -> list[tuple[int, int, int]]:
        """(address, bytes, device) of each block in each plane (a layer's keys, or its values)."""
        size = self._piece_bytes()
        planes = self._cache.shape[0] * self._cache.shape[1]
        return [
            (at.address + (plane * at.num_blocks + block) * size, size, at.device)
            for plane in range(planes)
            for block in block_ids
        ]

    def _piece_bytes(self) -> int:
        return self._cache[0, 0, 0].numel() * self._cache.element_size()

    def _count(self, read: _Read, now: float) -> None:
        moved = self.moved
        moved.transfers += 1
        moved.blocks += read.blocks
        moved.pieces += read.pieces
        moved.nbytes += read.pieces * self._piece_bytes()
        moved.seconds += now - read.begun
