"""Fleet: what the proxy knows of its replicas, made of events and nothing else.

The proxy applies an event as it happens and writes it down; ``route_log.replay`` reads them back.
Both run this code, so a policy sees the same views and makes the same choices, live and offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from minilab.core.radix_tree import RadixTree
from minilab.core.request import RequestState
from minilab.core.router import REJECT, Router, tell_ended
from minilab.facts.request import Request
from minilab.serve.route_text import PAGE

_NOBODY = 1 << 40  # the load that a replica shows while it is down
_UNKNOWN_BLOCKS = 1 << 12  # of a replica that has not been scraped yet


class Placed(NamedTuple):
    """A request on a replica: estimated prompt tokens, and those of them that it should have."""

    state: RequestState
    prompt: int
    match: int


class ReplicaView:
    """One replica; see ``core.router.View``. All tokens are estimates (``route_text``).

    Own requests count at once. What a scrape shows beyond them (other proxies, other clients) is
    added to ``running`` until the next scrape. What is cached is what was sent there, as far as the
    replica's KV blocks reach.
    """

    def __init__(self) -> None:
        self.up = False
        self.queued: dict[int, Placed] = {}  # no token has come back yet
        self.begun: dict[int, Placed] = {}
        self.foreign = 0
        self.usage = 0.0
        self._blocks = 0
        self._tree = RadixTree(PAGE)

    @property
    def in_flight(self) -> int:
        """Requests of this proxy."""
        return len(self.queued) + len(self.begun)

    @property
    def running(self) -> int:
        """See ``View``."""
        return len(self.begun) + self.foreign if self.up else _NOBODY

    @property
    def waiting(self) -> int:
        """See ``View``."""
        return len(self.queued)

    @property
    def decoding(self) -> int:
        """See ``View``."""
        return self.running

    @property
    def pending_tokens(self) -> int:
        """See ``View``."""
        own = sum(one.prompt - one.match for one in self.queued.values())
        return own if self.up else own + _NOBODY

    @property
    def num_blocks(self) -> int:
        """See ``View``."""
        return self._blocks or _UNKNOWN_BLOCKS

    @property
    def cached_blocks(self) -> int:
        """See ``View``."""
        return self._tree.num_pages

    def tokens_at(self, now: int) -> int:
        """See ``View``; the prompts of running requests."""
        return sum(one.prompt for one in self.begun.values()) + (0 if self.up else _NOBODY)

    def blocks_at(self, now: int) -> int:
        """See ``View``; as last scraped, or what own requests need if that is more."""
        own = sum(-(-one.prompt // PAGE) for one in self.begun.values())
        scraped = round(self.usage * self.num_blocks)
        return max(own, scraped) if self.up else _NOBODY

    def match(self, request: RequestState) -> int:
        """See ``View``."""
        return self._tree.match_tokens(request.request) if self.up else 0

    def place(self, state: RequestState) -> None:
        """``state`` is sent here."""
        prompt = state.num_prompt_tokens
        self.queued[state.id] = Placed(state, prompt, self.match(state))
        self._tree.insert_prompt(state.request)
        excess = self._tree.num_pages - self.num_blocks
        if excess > 0:
            self._tree.evict(excess, ())

    def scraped(self, load: int, usage: float, blocks: int) -> None:
        """Its own figures: requests that it has, share of KV blocks in use, KV blocks."""
        self.foreign = max(0, load - self.in_flight)
        self.usage, self._blocks = usage, blocks

    def set_up(self, up: bool) -> None:
        """It answers, or does not; a replica that comes back has an empty cache."""
        self.up = up
        if not up:
            self._tree = RadixTree(PAGE)
            self.foreign, self.usage = 0, 0.0


class Fleet:
    """The replicas and the policy that chooses between them.

    Attributes:
        views: one per replica, in order, down or not, so that an index stays what it is.
    """

    def __init__(self, count: int, policy: Router) -> None:
        self.views = [ReplicaView() for _ in range(count)]
        self.policy = policy
        self._where: dict[int, int] = {}

    def apply(self, event: dict[str, Any]) -> int | None:
        """Take an event in; for an arrival or a retry, the chosen replica, ``REJECT`` for none."""
        kind = event["event"]
        if kind == "arrival":
            return self._arrive(event)
        if kind == "first":
            self._begin(event["id"])
        elif kind == "end":
            self._end(event["id"])
        elif kind == "up":
            self.views[event["replica"]].set_up(event["up"])
        elif kind == "scrape":
            view = self.views[event["replica"]]
            view.scraped(event["load"], event["usage"], event["blocks"])
            scrape: Any = getattr(self.policy, "scrape", None)
            if scrape is not None:
                scrape(self.views, event["t"])
        return None

    def move(self, number: int, index: int) -> None:
        """A request that the policy sent elsewhere was really placed on ``index`` (or nowhere)."""
        found = self._where.pop(number, None)
        placed = None if found is None else self.views[found].queued.pop(number)
        if index != REJECT and placed is not None:
            self.views[index].place(placed.state)
            self._where[number] = index

    def _arrive(self, event: dict[str, Any]) -> int:
        prompt = tuple((name, length) for name, length in event["prompt"])
        tokens = sum(length for _, length in prompt)
        spec = Request(
            event["id"],
            0.0,
            tokens,
            event["max_tokens"],
            prompt,
            cache_salt=event["salt"],
            session=event["session"],
        )
        state = RequestState(spec)
        state.queued_at = event["t"]
        index = self._choose(state, event["tried"])
        if index != REJECT:
            self.views[index].place(state)
            self._where[state.id] = index
        return index

    def _choose(self, state: RequestState, tried: Sequence[int]) -> int:
        """The policy's choice; one that is down, or was tried, is asked again, then overruled."""
        usable = [k for k, view in enumerate(self.views) if view.up and k not in tried]
        if not usable:
            return REJECT
        for _ in self.views:
            index = self.policy.choose(state, self.views)
            if index == REJECT or index in usable:
                return index
            tell_ended(self.policy, state, index)
        return min(usable, key=lambda k: self.views[k].in_flight)

    def _begin(self, number: int) -> None:
        view = self.views[self._where[number]]
        if number in view.queued:
            view.begun[number] = view.queued.pop(number)

    def _end(self, number: int) -> None:
        """A request has ended there, in whatever way."""
        index = self._where.pop(number)
        view = self.views[index]
        placed = view.queued.pop(number, None) or view.begun.pop(number)
        tell_ended(self.policy, placed.state, index)
