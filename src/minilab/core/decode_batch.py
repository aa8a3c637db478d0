"""DecodeBatch: the requests that produce one token per step, advanced in lockstep.

Each step moves every request here by one token. So instead of counting per request, the batch keeps
one ``clock`` of decode steps, and a request stores the ``offset`` between its own position and that
clock. Advancing by n steps then costs as much as advancing by one, save for the blocks that fill. A
request that moves by another number of tokens (speculation) has its own offset shifted.
"""

from __future__ import annotations

from heapq import heappop, heappush

from minilab.core.block_pool import BlockPool
from minilab.core.request import RequestState


class DecodeBatch:
    """Decoding requests by id, oldest first.

    Attributes:
        clock: decode steps made since the start.
        kv_tokens: KV tokens of all requests in the batch.
        grown: steps of the current run whose blocks are taken; the first step's are taken when it
            is planned, later ones when the run is committed, or before if somebody looks.
    """

    __slots__ = (
        "_due",
        "_finishing",
        "_uneven",
        "block_size",
        "clock",
        "grown",
        "kv_tokens",
        "pool",
        "requests",
    )

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.pool = pool
        self.block_size = block_size
        self.requests: dict[int, RequestState] = {}
        self.clock = 0
        self.kv_tokens = 0
        self.grown = 1
        # (clock of the last token, id, request). An entry whose request was preempted or shifted
        # in the meantime no longer equals ``request.last`` and is dropped when it comes up.
        self._finishing: list[tuple[int, int, RequestState]] = []
        # Phase p: the requests that open a new block when clock % block_size == p. Empty phases
        # are removed, so that a large block costs no scan of empty ones.
        self._due: dict[int, dict[int, RequestState]] = {}
        # After a shift both are out of date; they are made anew when a lockstep step needs them.
        self._uneven = False

    # -- membership ---------------------------------------------------------------------------

    def add(self, request: RequestState) -> None:
        """``request`` has computed all it knows: from now on it yields a token per step."""
        computed = request.num_computed_tokens
        request.decoding = True
        request.offset = computed - self.clock
        self.requests[request.id] = request
        self.kv_tokens += computed
        self._enter(request, self.clock + request.max_tokens - request.num_output_tokens)

    def remove(self, request: RequestState) -> None:
        """Take ``request`` out and write its counts down."""
        computed = request.offset + self.clock
        request.num_computed_tokens = computed
        request.num_output_tokens = computed - request.num_prompt_tokens + 1
        self._leave(request)
        request.decoding = False
        del self.requests[request.id]
        self.kv_tokens -= computed

    def newest(self) -> RequestState:
        """The request that joined last."""
        return next(reversed(self.requests.values()))

    def _enter(self, request: RequestState, last: int) -> None:
        request.last = last
        if self._uneven:
            return
        heappush(self._finishing, (last, request.id, request))
        phase = -request.offset % self.block_size
        due = self._due.get(phase)
        if due is None:
            self._due[phase] = {request.id: request}
        else:
            due[request.id] = request

    def _leave(self, request: RequestState) -> None:
        request.last = -1
        if self._uneven:
            return
        phase = -request.offset % self.block_size
        due = self._due[phase]
        del due[request.id]
        if not due:
            del self._due[phase]

    def _even_out(self) -> None:
        """Make the tables of lockstep anew after steps in which requests moved unevenly."""
        self._uneven = False
        self._finishing.clear()
        self._due.clear()
        for request in self.requests.values():
            self._enter(request, request.last)

    # -- blocks -------------------------------------------------------------------------------

    def due(self) -> int:
        """How many requests open a new block in the next step."""
        if self._uneven:
            self._even_out()
        requests = self._due.get(self.clock % self.block_size)
        return len(requests) if requests else 0

    def open_blocks(self, clock: int) -> None:
        """Give a block to each request that opens one in the step at ``clock``."""
        requests = self._due.get(clock % self.block_size)
        if requests:
            for request, block in zip(
                requests.values(), self.pool.take(len(requests)), strict=True
            ):
                request.block_table.append(block)

    def grow(self, steps: int) -> None:
        """Open the blocks of the first ``steps`` steps of the current run, as far as not done."""
        size, due = self.block_size, self._due
        first, more = self.clock + self.grown, steps - self.grown
        if more <= 0:
            return
        self.grown = steps
        cycles, rest = divmod(more, size)
        take = self.pool.take
        if cycles:
            blocks = take(cycles * len(self.requests))
            for request in self.requests.values():
                request.block_table += blocks[-cycles:]
                del blocks[-cycles:]
        if rest < len(due):
            found = [due[k % size] for k in range(first, first + rest) if k % size in due]
        else:
            found = [requests for phase, requests in due.items() if (phase - first) % size < rest]
        tables = [request.block_table for requests in found for request in requests.values()]
        if tables:
            for table, block in zip(tables, take(len(tables)), strict=True):
                table.append(block)

    def growth(self, steps: int) -> int:
        """Blocks that ``grow(steps)`` would take."""
        size = self.block_size
        cycles, rest = divmod(max(0, steps - self.grown), size)
        first = self.clock + self.grown
        return cycles * len(self.requests) + sum(
            len(requests) for phase, requests in self._due.items() if (phase - first) % size < rest
        )

    # -- steps --------------------------------------------------------------------------------

    def steps_to_go(self, available: int) -> int:
        """Steps until the first request finishes or, after the next one, blocks run out."""
        finishing = self._finishing
        while finishing[0][2].last != finishing[0][0]:
            heappop(finishing)
        steps = finishing[0][0] - self.clock
        batch, size = len(self.requests), self.block_size
        if available >= batch * ((steps - 1) // size + 1):
            return steps
        cycles, left = divmod(available, batch)
        affordable = 1 + cycles * size
        for clock in range(self.clock + 1, self.clock + 1 + size):
            left -= len(self._due.get(clock % size, ()))
            if left < 0:
                break
            affordable += 1
        return min(steps, affordable)

    def advance(self, steps: int) -> None:
        """Every request moves by ``steps`` tokens; the blocks of later steps are taken here."""
        if steps > self.grown:
            self.grow(steps)
        self.grown = 1
        self.clock += steps
        self.kv_tokens += len(self.requests) * steps

    def shift(self, request: RequestState, extra: int) -> None:
        """``request`` moved by ``extra`` tokens more than the others in the step just made."""
        self._uneven = True
        request.last -= extra
        request.offset += extra
        self.kv_tokens += extra

    def trim(self, request: RequestState) -> None:
        """Give blocks back that ``request`` took for drafts which were rejected."""
        need = -(-(request.offset + self.clock) // self.block_size)
        table = request.block_table
        if len(table) > need:
            self.pool.blank += table[need:]  # beyond the computed tokens, so never published
            del table[need:]

    def pop_finished(self) -> list[RequestState]:
        """Requests that have put out their last token, by arrival; they leave the batch."""
        finishing, clock = self._finishing, self.clock
        if self._uneven:
            late = [request for request in self.requests.values() if request.last <= clock]
            late.sort(key=lambda request: (request.last, request.id))
            for request in late:
                self.remove(request)
            return late
        if not finishing or finishing[0][0] > clock:
            return []
        done: list[RequestState] = []
        while finishing and finishing[0][0] <= clock:
            last, _, request = heappop(finishing)
            if request.last == last:
                self.remove(request)
                done.append(request)
        return done
