"""RequestLists: queue, prompts and decodes of a plain scheduler, without any policy.

It is what a scheduler of your own can start from (see ``plain_scheduler``): blocks and prefix cache
are here, and the small answers that instances and routers ask for.
"""

from __future__ import annotations

from collections import deque

from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepPlan
from minilab.core.prefix_indexes import make_index
from minilab.core.request import ABORTED, REJECTED, RequestState


class RequestLists:
    """The lists of one scheduler, and what others ask of them.

    Attributes:
        waiting: the queue, in order of arrival; preempted requests go to its front.
        prefilling: running requests whose prompt is not done, in order of admission.
        decoding: running requests that put out a token per step, oldest first.
    """

    accepts_now = True

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.pool, self.index = make_index(config)
        self.waiting: deque[RequestState] = deque()
        self.prefilling: list[RequestState] = []
        self.decoding: list[RequestState] = []
        self.num_preemptions = 0
        self.peak_used = 0

    @property
    def num_running(self) -> int:
        """Requests with a running slot."""
        return len(self.prefilling) + len(self.decoding)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def num_decoding(self) -> int:
        """Requests whose stream has begun."""
        return len(self.decoding)

    def pending_tokens(self) -> int:
        """Known tokens that no step has computed, less what routers expect to find cached."""
        queued = sum(request.num_tokens - request.expected_hit for request in self.waiting)
        begun = sum(r.num_tokens - r.num_computed_tokens for r in self.prefilling)
        return queued + begun

    def tokens_in_flight(self, steps_over: int = 0) -> int:
        """KV tokens of running requests."""
        running = [*self.prefilling, *self.decoding]
        return sum(request.num_computed_tokens for request in running)

    def blocks_in_use(self, steps_begun: int = 1) -> int:
        """KV blocks in use."""
        return self.pool.used

    def match(self, request: RequestState, steps_begun: int = 1) -> int:
        """Tokens of ``request`` that the prefix index could serve now."""
        return len(self.index.match(request)) * self.config.block_size

    def blocks(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.config.block_size)

    def repeats(self, plan: StepPlan) -> int:
        """One step at a time."""
        return 1

    def add(self, request: RequestState) -> bool:
        """Queue a request, or refuse one that the pool could never hold."""
        longest = request.num_prompt_tokens + request.max_tokens - 1
        if self.blocks(longest) > self.config.num_blocks:
            request.status = REJECTED
            return False
        self.waiting.append(request)
        return True

    def abort(self, request: RequestState) -> None:
        """Forget a request and take its blocks back."""
        for place in (self.waiting, self.prefilling, self.decoding):
            if request in place:
                place.remove(request)
        self.index.release(request)
        request.status = ABORTED
