"""Views that are not true: an instance as a router sees it that counts wrongly, or not at all.

``router_faults`` puts them between a sound policy and the instances.
"""

from __future__ import annotations

from typing import Any

from minilab.core.radix_tree import RadixTree
from minilab.core.request import RequestState
from minilab.core.router import View


class SeenView:
    """A view through something: everything as it is, unless a subclass says otherwise."""

    def __init__(self, view: View) -> None:
        self.view = view

    @property
    def running(self) -> int:
        """See ``View``."""
        return self.view.running

    @property
    def waiting(self) -> int:
        """See ``View``."""
        return self.view.waiting

    @property
    def decoding(self) -> int:
        """See ``View``."""
        return self.view.decoding

    @property
    def pending_tokens(self) -> int:
        """See ``View``."""
        return self.view.pending_tokens

    @property
    def num_blocks(self) -> int:
        """See ``View``."""
        return self.view.num_blocks

    @property
    def cached_blocks(self) -> int:
        """See ``View``."""
        return self.view.cached_blocks

    def tokens_at(self, now: int) -> int:
        """See ``View``."""
        return self.view.tokens_at(now)

    def blocks_at(self, now: int) -> int:
        """See ``View``."""
        return self.view.blocks_at(now)

    def match(self, request: RequestState) -> int:
        """See ``View``."""
        return self.view.match(request)


class NoLoadView(SeenView):
    """No load at all, whatever runs."""

    running = waiting = decoding = pending_tokens = 0

    def tokens_at(self, now: int) -> int:
        """See ``View``."""
        return 0

    def blocks_at(self, now: int) -> int:
        """See ``View``."""
        return 0


class LateLoadView(SeenView):
    """Only the requests whose stream has begun."""

    waiting = pending_tokens = 0

    @property
    def running(self) -> int:
        """See ``View``."""
        return self.view.decoding


class FirstMessageView(SeenView):
    """A cache that is looked up with the first content segment of a prompt, and no further."""

    def match(self, request: RequestState) -> int:
        """See ``View``."""
        spec: Any = request.request
        first = spec.prompt[0][1] if spec.prompt else 0
        return min(self.view.match(request), first)


class Snapshot(SeenView):
    """Load figures as they were at the last scrape; what is cached is known at once (events)."""

    running = waiting = decoding = pending_tokens = 0
    _tokens = _blocks = 0

    def take(self, now: int) -> None:
        """Write down what the instance shows at ``now`` (ticks)."""
        view = self.view
        self.running, self.waiting = view.running, view.waiting
        self.decoding, self.pending_tokens = view.decoding, view.pending_tokens
        self._tokens, self._blocks = view.tokens_at(now), view.blocks_at(now)

    def tokens_at(self, now: int) -> int:
        """See ``View``."""
        return self._tokens

    def blocks_at(self, now: int) -> int:
        """See ``View``."""
        return self._blocks


class OwnLoadView(SeenView):
    """Load as one of several routers counts it: only what it sent itself.

    ``prompts``: prompt tokens of each request that is there, by id.
    """

    waiting = 0

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.prompts: dict[int, int] = {}

    @property
    def running(self) -> int:
        """See ``View``."""
        return len(self.prompts)

    @property
    def decoding(self) -> int:
        """See ``View``."""
        return len(self.prompts)

    @property
    def pending_tokens(self) -> int:
        """See ``View``."""
        return sum(self.prompts.values())

    def tokens_at(self, now: int) -> int:
        """See ``View``."""
        return sum(self.prompts.values())


class HistoryView(SeenView):
    """What was sent there, for ever: nobody tells of evictions.

    ``tree``: prompts that were sent, in pages of ``page`` tokens.
    """

    def __init__(self, view: View, page: int) -> None:
        super().__init__(view)
        self.tree = RadixTree(page)

    @property
    def cached_blocks(self) -> int:
        """See ``View``."""
        return self.tree.num_pages

    def match(self, request: RequestState) -> int:
        """See ``View``."""
        return self.tree.match_tokens(request.request)
