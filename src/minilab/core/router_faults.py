"""What goes wrong with routers in production, as switches around a policy that is sound.

Each fault is a router that shows the inner one other views than the true ones. They can be stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minilab.core.request import RequestState
from minilab.core.router import REJECT, Router, View, tell_ended
from minilab.core.router_views import (
    FirstMessageView,
    HistoryView,
    LateLoadView,
    NoLoadView,
    OwnLoadView,
    Snapshot,
)


class Faulty:
    """A router that shows another one views of its own making.

    ``see`` makes the view; it is made once per instance.
    """

    def __init__(self, inner: Router, see: Callable[[View], View]) -> None:
        self.inner = inner
        self._see = see
        self._seen: list[Any] = []

    def seen(self, views: Sequence[View]) -> list[Any]:
        """The views that the inner router gets."""
        while len(self._seen) < len(views):
            self._seen.append(self._see(views[len(self._seen)]))
        return self._seen

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        return self.inner.choose(request, self.seen(views))

    def ended(self, request: RequestState, index: int) -> None:
        """See the module ``router``."""
        tell_ended(self.inner, request, index)

    @property
    def period(self) -> float:
        """Seconds between scrapes that the inner router asks for; 0: none."""
        return float(getattr(self.inner, "period", 0.0))

    def scrape(self, views: Sequence[View], now: int) -> None:
        """See the module ``router``."""
        scrape: Any = getattr(self.inner, "scrape", None)
        if scrape is not None:
            scrape(self.seen(views), now)


class NoLoad(Faulty):
    """The load is never counted, so all instances look idle (vllm-project/router#179)."""

    def __init__(self, inner: Router) -> None:
        super().__init__(inner, NoLoadView)


class LateLoad(Faulty):
    """A request counts only once its stream has begun (sglang#27547)."""

    def __init__(self, inner: Router) -> None:
        super().__init__(inner, LateLoadView)


class FirstMessage(Faulty):
    """The key is made of the first message alone, the system prompt (sglang#26263)."""

    def __init__(self, inner: Router) -> None:
        super().__init__(inner, FirstMessageView)


class Stale(Faulty):
    """Load figures are scraped every ``value`` seconds (inference-sim#433, llm-d-router#298)."""

    def __init__(self, inner: Router, value: float = 0.1) -> None:
        super().__init__(inner, Snapshot)
        if not value > 0:
            raise ValueError(f"stale={value:g}: the period is in seconds, above 0")
        self._period = value

    @property
    def period(self) -> float:
        """Seconds between scrapes."""
        return self._period

    def scrape(self, views: Sequence[View], now: int) -> None:
        """Take down every instance's figures."""
        for view in self.seen(views):
            view.take(now)


class Unshared:
    """``value`` routers side by side, each counting only the requests that it placed itself."""

    def __init__(self, inner: Callable[[], Router], value: int = 2) -> None:
        if value < 1 or value != int(value):
            raise ValueError(f"routers={value:g}: give a whole number of at least 1")
        self.routers = [Faulty(inner(), OwnLoadView) for _ in range(int(value))]
        self._turn = -1
        self._sent_by: dict[int, Faulty] = {}

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``; requests are dealt to the routers in turn."""
        self._turn = (self._turn + 1) % len(self.routers)
        router = self.routers[self._turn]
        index = router.choose(request, views)
        if index != REJECT:
            router.seen(views)[index].prompts[request.id] = request.num_prompt_tokens
            self._sent_by[request.id] = router
        return index

    def ended(self, request: RequestState, index: int) -> None:
        """The one that placed the request strikes it off."""
        router = self._sent_by.pop(request.id)
        router.seen(())[index].prompts.pop(request.id, None)
        router.ended(request, index)


class NoEvictionFeedback(Faulty):
    """What an instance has cached is taken from what was sent there; evictions go unnoticed.

    ``value``: tokens per page of the router's own tree.
    """

    def __init__(self, inner: Router, value: int = 16) -> None:
        super().__init__(inner, lambda view: HistoryView(view, int(value)))

    def choose(self, request: RequestState, views: Sequence[View]) -> int:
        """See ``Router``."""
        index = super().choose(request, views)
        if index != REJECT:
            self.seen(views)[index].tree.insert_prompt(request.request)
        return index
