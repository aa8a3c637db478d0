"""KVConnector: the scheduler's half of moving KV between two engines, under vLLM's verbs.

It knows which request's KV lies in which blocks of whom, never how bytes move: that is a transport
(wires on a virtual clock in the simulator, torch.distributed in the engine). One connector stands
at each end. The prefill end is asked ``request_finished`` and keeps the blocks; the decode end is
asked how many tokens it need not compute, is told the blocks that were taken for them, and hands
the transport its work with ``build_connector_meta``. ``get_finished`` brings the news back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from minilab.core.remote_kv import RemoteKV
from minilab.core.request import RequestState


class KVTransferParams(NamedTuple):
    """What the prefill end says about KV that is ready (vLLM: ``kv_transfer_params``).

    ``remote_block_ids``: its blocks, in order of position; ``num_tokens``: tokens in them;
    ``first_token``: the prefill end has put out the first token too (DistServe; vLLM's decode end
    recomputes the last prompt token instead).
    """

    remote_engine_id: int
    remote_block_ids: Sequence[int]
    num_tokens: int
    first_token: bool


class KVLoad(NamedTuple):
    """Work for a transport: ``remote_block_ids[k]`` of that engine goes to ``block_ids[k]``."""

    request: RequestState
    remote_engine_id: int
    remote_block_ids: Sequence[int]
    block_ids: Sequence[int]
    num_tokens: int

    @property
    def num_blocks(self) -> int:
        """Blocks to move."""
        return len(self.block_ids)


class Finished(NamedTuple):
    """What a transport has to report (ids of requests)."""

    sending: Sequence[int] = ()
    recving: Sequence[int] = ()
    failed: Sequence[int] = ()


class KVTransport(Protocol):
    """The worker's half: moves bytes (vLLM: ``start_load_kv`` and ``get_finished``)."""

    def start_load_kv(self, loads: Sequence[KVLoad]) -> None:
        """Begin to fetch; returns at once."""
        ...

    def get_finished(self) -> Finished:
        """What ended since the last call."""
        ...


class KVConnector:
    """One end of the transfers of one scheduler.

    Args:
        engine_id: how the other end names this one.
        block_size: tokens per block, the same at both ends.
        remote: the scheduler's requests in transfer.
    """

    __slots__ = ("_block_size", "_external", "_loads", "_params", "engine_id", "remote")

    def __init__(self, engine_id: int, block_size: int, remote: RemoteKV) -> None:
        self.engine_id = engine_id
        self.remote = remote
        self._block_size = block_size
        self._params: dict[int, KVTransferParams] = {}
        self._external: dict[int, int] = {}
        self._loads: list[RequestState] = []

    # -- the end that has KV ----------------------------------------------------------------------

    def request_finished(
        self, request: RequestState, block_ids: Sequence[int], first_token: bool = True
    ) -> tuple[bool, KVTransferParams | None]:
        """(keep the blocks, what to tell the other end) of a request that is done here."""
        if not request.hold_blocks:
            return False, None
        tokens = request.num_prompt_tokens
        used = -(-tokens // self._block_size)
        return True, KVTransferParams(self.engine_id, block_ids[:used], tokens, first_token)

    # -- the end that wants it --------------------------------------------------------------------

    def expect(self, request: RequestState, params: KVTransferParams) -> None:
        """KV of ``request`` is, or will be, at the other end."""
        self._params[request.id] = params

    def get_num_new_matched_tokens(
        self, request: RequestState, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """(prompt tokens to fetch beyond those computed, whether they come while steps go on)."""
        params = self._params.get(request.id)
        if params is None:
            return 0, False
        return max(0, params.num_tokens - num_computed_tokens), True

    def reserve(self, request: RequestState) -> bool:
        """Take blocks for the whole prompt and note what must be fetched; False: no room now."""
        if not self.remote.reserve(request):
            return False
        missing, _ = self.get_num_new_matched_tokens(request, request.num_computed_tokens)
        self.update_state_after_alloc(request, request.block_table, missing)
        return True

    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        """Blocks were taken: the last ``num_external_tokens`` of them wait for a transfer."""
        self._external[request.id] = num_external_tokens
        self._loads.append(request)

    def build_connector_meta(self) -> list[KVLoad]:
        """Transfers to begin with the step that is being planned. Forgets them."""
        loads, self._loads = self._loads, []
        return [self._load(request) for request in loads]

    def _load(self, request: RequestState) -> KVLoad:
        params, missing = self._params[request.id], self._external[request.id]
        skip = (params.num_tokens - missing) // self._block_size
        return KVLoad(
            request,
            params.remote_engine_id,
            params.remote_block_ids[skip:],
            request.block_table[skip:],
            missing,
        )

    # -- both ends --------------------------------------------------------------------------------

    def finish(self, finished: Finished) -> None:
        """Tell the scheduler what a transport reports."""
        for request_id in finished.recving:
            self.arrived(request_id)
        for request_id in finished.sending:
            self.remote.finish_sending(request_id)
        for request_id in finished.failed:
            request = self.remote.receiving.get(request_id)
            if request is not None and self._forget(request_id).first_token:
                request.num_output_tokens = 1  # it is out; recomputing must not repeat it
            self.remote.fail(request_id)

    def arrived(self, request_id: int) -> None:
        """The KV of one request is there: ``finish`` for that alone."""
        self.remote.finish_recving(request_id, self._forget(request_id).first_token)

    def forget(self, request_id: int) -> None:
        """A request was given up."""
        self._params.pop(request_id, None)
        self._external.pop(request_id, None)
        self._loads = [request for request in self._loads if request.id != request_id]

    def _forget(self, request_id: int) -> KVTransferParams:
        self._external.pop(request_id, None)
        return self._params.pop(request_id)
