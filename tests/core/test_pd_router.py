"""The rule that decides who is split; a wrong comparison would split the wrong requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from driving import state

from minilab.core.pd_router import PdRouter, PdRule, Route
from minilab.core.routers import make_router


@dataclass
class View:
    """An instance as the router sees it."""

    waiting: int = 0
    cached: int = 0
    running: int = 0

    def match(self, request: Any) -> int:
        return self.cached


def choose(rule: PdRule, prompt: int, prefill: list[View], decode: list[View]) -> Route:
    router = PdRouter(rule, make_router("least-load"), make_router("least-load"))
    return router.choose(state(0, prompt, 5), prefill, decode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "prompt", "queue", "split"),
    [
        ("always", 1, 99, True),
        ("never", 9999, 0, False),
        ("length", 100, 99, False),
        ("length", 101, 99, True),
        ("queue", 1, 2, True),
        ("queue", 9999, 3, False),
        ("conditional", 101, 2, True),
        ("conditional", 100, 2, False),
        ("conditional", 101, 3, False),
    ],
)
def test_the_limits_are_those_that_were_given(
    mode: str, prompt: int, queue: int, split: bool
) -> None:
    """Exactly at a limit, and one beyond it."""
    rule = PdRule(mode, max_local_prefill_length=100, max_prefill_queue_size=2)
    route = choose(rule, prompt, [View(waiting=queue)], [View()])
    assert (route.prefill is not None) == split


def test_what_the_decode_side_has_cached_is_not_counted() -> None:
    rule = PdRule("length", max_local_prefill_length=100)
    assert choose(rule, 500, [View()], [View(cached=400)]).prefill is None
    assert choose(rule, 500, [View()], [View(cached=384)]).prefill == 0


def test_the_queue_is_an_average_over_the_pool() -> None:
    rule = PdRule("queue", max_prefill_queue_size=2)
    assert choose(rule, 9, [View(waiting=4), View(waiting=0)], [View()]).prefill == 1
    assert choose(rule, 9, [View(waiting=5), View(waiting=0)], [View()]).prefill is None


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="pd_mode is 'sometimes'; known are always"):
        PdRule("sometimes")
    with pytest.raises(ValueError, match="max_prefill_queue_size is -1"):
        PdRule(max_prefill_queue_size=-1)
