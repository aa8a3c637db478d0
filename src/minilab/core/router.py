"""Routers: which instance a request goes to.

A policy is ``choose(request, views) -> index``. It sees an instance only through its ``View``,
which answers for the moment at which the request arrives (``request.queued_at``, in ticks); in the
simulator a view looks into the scheduler, in the HTTP proxy it is made of what the proxy counted
and scraped. So the same objects serve both.

A policy that keeps counts of its own also has ``ended(request, index)``, called once when a request
that it placed has ended; one that reads metrics on a timer has ``period`` (seconds) and
``scrape(views, now)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from minilab.core.request import RequestState

REJECT = -1
"""Chosen instead of an instance: refuse the request now."""


class View(Protocol):
    """What a router may know of an instance. Times are ticks, lengths are tokens."""

    @property
    def running(self) -> int:
        """Requests with a running slot."""

    @property
    def waiting(self) -> int:
        """Requests in the queue."""

    @property
    def decoding(self) -> int:
        """Requests whose stream has begun."""

    @property
    def pending_tokens(self) -> int:
        """Known tokens of queued and half-computed requests that are not computed yet."""

    @property
    def num_blocks(self) -> int:
        """KV blocks of the instance."""

    @property
    def cached_blocks(self) -> int:
        """KV blocks that can be found by content."""

    def tokens_at(self, now: int) -> int:
        """KV tokens of running requests."""

    def blocks_at(self, now: int) -> int:
        """KV blocks in use."""

    def match(self, request: RequestState) -> int:
        """Leading prompt tokens of ``request`` that its cache holds."""


class Router(Protocol):
    """Chooses an instance for each request as it arrives."""

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """Index into ``views``, or ``REJECT``."""
        ...


def load(view: View) -> int:
    """Requests that an instance has to serve, queued ones included."""
    return view.running + view.waiting


def tell_ended(router: Router, request: RequestState, index: int) -> None:
    """Tell a router that counts, and no other."""
    ended: Any = getattr(router, "ended", None)
    if ended is not None:
        ended(request, index)
