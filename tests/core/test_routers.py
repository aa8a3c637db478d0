"""Routing policies: what each one reads, what it ignores, and what a fault makes it do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from driving import state

from minilab.core.request import RequestState
from minilab.core.router import REJECT, View
from minilab.core.routers import FAULTS, ROUTERS, make_router


@dataclass
class FakeView:
    """An instance as a proxy might know it: plain figures."""

    running: int = 0
    waiting: int = 0
    decoding: int = 0
    pending_tokens: int = 0
    num_blocks: int = 1000
    cached_blocks: int = 0
    tokens: int = 0
    cached: dict[int, int] = field(default_factory=dict)  # request id -> tokens

    def tokens_at(self, now: int) -> int:
        return self.tokens

    def blocks_at(self, now: int) -> int:
        return self.tokens // 16

    def match(self, request: RequestState) -> int:
        return self.cached.get(request.id, 0)


def request(i: int = 0, prompt: int = 1000, **more: Any) -> RequestState:
    return state(i, prompt, 10, ((7, 100), (100 + i, prompt - 100)), **more)


def three(*loads: int, cached: tuple[int, ...] = (0, 0, 0)) -> list[View]:
    return [
        FakeView(running=n, decoding=n, pending_tokens=100 * n, tokens=500 * n, cached={0: c})
        for n, c in zip(loads, cached, strict=True)
    ]


def test_random_follows_its_seed_and_no_other() -> None:
    """A router that ignores the seed makes every repeat the same run."""
    views = three(0, 0, 0)
    one, same, other = make_router("random", 3), make_router("random", 3), make_router("random", 4)
    draws = [[r.choose(request(i), views) for i in range(50)] for r in (one, same, other)]
    assert draws[0] == draws[1] != draws[2]
    assert set(draws[0]) == {0, 1, 2}


def test_round_robin_takes_turns_whatever_the_load() -> None:
    router = make_router("round-robin")
    assert [router.choose(request(i), three(9, 0, 0)) for i in range(4)] == [0, 1, 2, 0]


def test_least_load_counts_the_queue_too() -> None:
    views = [FakeView(running=3), FakeView(running=1, waiting=3), FakeView(running=3, waiting=2)]
    assert make_router("least-load").choose(request(), views) == 0


def test_least_kv_compares_shares_of_unlike_pools() -> None:
    views = [FakeView(num_blocks=1000, tokens=4800), FakeView(num_blocks=100, tokens=640)]
    assert make_router("least-kv").choose(request(), views) == 0, "300 of 1000, 40 of 100"


def test_power_of_two_never_takes_the_busiest_of_three() -> None:
    router = make_router("power-of-two", 1)
    chosen = {router.choose(request(i), three(5, 1, 2)) for i in range(60)}
    assert chosen == {1, 2}


def test_a_session_stays_though_its_home_got_busy() -> None:
    router = make_router("session")
    assert router.choose(request(0, session=5), three(2, 0, 1)) == 1
    assert router.choose(request(1, session=5), three(2, 9, 1)) == 1
    assert router.choose(request(2), three(2, 9, 1)) == 2, "no session: by load"


def test_longest_prefix_ignores_load() -> None:
    assert make_router("longest-prefix").choose(request(), three(90, 0, 0, cached=(16, 0, 0))) == 0
    assert make_router("longest-prefix").choose(request(), three(2, 1, 3, cached=(16, 16, 0))) == 1


@pytest.mark.parametrize(
    ("loads", "cached", "chosen"),
    [
        ((10, 0, 3), (400, 0, 0), 0),  # balanced: 10 apart is within the slack of 64
        ((10, 0, 3), (300, 0, 0), 1),  # a match of exactly the threshold does not count
        ((70, 0, 3), (400, 0, 0), 1),  # out of balance: by load
        ((170, 100, 120), (0, 0, 900), 1),  # 70 apart and 1.7 times
        ((210, 145, 150), (0, 0, 900), 2),  # 65 apart but only 1.45 times
    ],
)
def test_cache_aware_thresholds(
    loads: tuple[int, ...], cached: tuple[int, ...], chosen: int
) -> None:
    assert make_router("cache-aware").choose(request(), three(*loads, cached=cached)) == chosen


def test_a_small_tree_is_not_a_small_load() -> None:
    views = three(9, 1, 5)
    for view, size in zip(views, (10, 500, 500), strict=True):
        view.cached_blocks = size  # type: ignore[misc]
    assert make_router("smallest-tree").choose(request(), views) == 0
    assert make_router("cache-aware").choose(request(), views) == 1


def test_bounded_prefix_keeps_locality_within_the_bound() -> None:
    views = three(9, 4, 3, cached=(900, 500, 0))
    assert make_router("bounded-prefix:slack=4").choose(request(), views) == 1
    assert make_router("bounded-prefix:slack=6").choose(request(), views) == 0
    assert make_router("bounded-prefix:slack=0").choose(request(), views) == 2


def test_overlap_cost_weighs_prefill_against_decode() -> None:
    views = three(2, 0, 1, cached=(800, 0, 0))  # costs 1400+2000, 1000+1000+..., 1100+1500
    assert make_router("overlap-cost").choose(request(), views) == 1
    assert make_router("overlap-cost:weight=10").choose(request(), views) == 0


def test_temperature_spreads_and_prefers_the_cheap_one() -> None:
    router = make_router("overlap-cost:temperature=0.5", 2)
    chosen = [router.choose(request(), three(2, 0, 1)) for _ in range(300)]
    assert chosen.count(1) > chosen.count(2) > chosen.count(0) > 0


def test_load_aware_score_trades_share_for_load() -> None:
    views = three(6, 0, 0, cached=(900, 0, 0))  # mean 2: 0.9 - 0.5 * 2 < 0.5 * 1
    assert make_router("load-aware-score").choose(request(), views) == 1
    assert make_router("load-aware-score:beta=0.1").choose(request(), views) == 0


def test_ours_gathers_shared_text_and_spreads_prefill() -> None:
    views = three(3, 1, 1, cached=(500, 500, 0))
    assert make_router("prefix-load").choose(request(), views) == 0, "equal matches: the first"
    views = three(40, 1, 1, cached=(500, 300, 0))
    assert make_router("prefix-load").choose(request(), views) == 1, "39 above the lowest load"
    views = three(5, 2, 3, cached=(150, 0, 0))
    views[2].pending_tokens = 0  # type: ignore[misc]
    assert make_router("prefix-load").choose(request(), views) == 2, "no prefill there"
    assert make_router("prefix-load:threshold=0.1").choose(request(), views) == 0


def test_estimate_fetches_waits_or_rejects() -> None:
    views = [FakeView(pending_tokens=900, cached={0: 900}), FakeView(pending_tokens=0)]
    alone = "transfer-queue-prefill:seconds_per_token=0.001"
    assert make_router(alone).choose(request(), views) == 0  # equal times: the first
    fetching = alone + ":transfer_seconds_per_token=0.0001"
    assert make_router(fetching).choose(request(), views) == 1
    assert make_router(alone + ":limit=0.9").choose(request(), views) == REJECT
    assert make_router(fetching + ":limit=0.9").choose(request(), views) == 1


# -- faults -----------------------------------------------------------------------------------


def test_an_uncounted_load_sends_everything_to_one() -> None:
    router = make_router("least-load", faults="no-load")
    assert {router.choose(request(i), three(9, 0, 4)) for i in range(9)} == {0}


def test_a_load_counted_late_does_not_see_the_queue() -> None:
    views = [FakeView(waiting=50), FakeView(running=2, decoding=2)]
    assert make_router("least-load").choose(request(), views) == 1
    assert make_router("least-load", faults="late-load").choose(request(), views) == 0


def test_stale_figures_are_those_of_the_last_scrape() -> None:
    router: Any = make_router("least-load", faults="stale=0.25")
    assert router.period == 0.25
    views = [FakeView(running=3), FakeView(running=1)]
    router.scrape(views, 0)
    views[1].running = 99
    assert router.choose(request(), views) == 1
    router.scrape(views, 1)
    assert router.choose(request(), views) == 0


def test_routers_apart_count_only_their_own() -> None:
    """Two routers that each think the first instance is free send it two requests."""
    views = three(0, 0, 0)
    apart: Any = make_router("least-load", faults="routers=2")
    assert [apart.choose(request(i), views) for i in range(6)] == [0, 0, 1, 1, 2, 2]
    apart.ended(request(0), 0)
    assert apart.choose(request(6), views) == 0, "the router that sent request 0 knows it ended"
    assert apart.choose(request(7), views) == 0, "ties again: 1, 1, 1 for the other one"


def test_the_first_message_alone_is_the_system_prompt() -> None:
    views = three(0, 0, 0, cached=(100, 900, 0))
    assert make_router("longest-prefix").choose(request(), views) == 1
    router = make_router("longest-prefix", faults="first-message")
    assert router.choose(request(), views) == 0, "both match the first 100 tokens: a tie"


def test_a_router_that_hears_of_no_eviction_trusts_what_it_sent() -> None:
    router = make_router("longest-prefix", faults="no-eviction-feedback")
    views = three(1, 0, 0)
    assert router.choose(request(0), views) == 1
    assert router.choose(request(0), three(0, 9, 0, cached=(900, 0, 0))) == 1


def test_faults_stack() -> None:
    router: Any = make_router("cache-aware:slack=4", faults="late-load+stale=2+routers=2")
    assert len(router.routers) == 2
    assert router.choose(request(), three(0, 1, 2)) in (0, 1, 2)


# -- by name ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ROUTERS))
@pytest.mark.parametrize("fault", ["", *sorted(FAULTS)])
def test_every_router_works_with_every_fault_and_from_one_instance_up(
    name: str, fault: str
) -> None:
    router: Any = make_router(name, 1, fault)
    for count in (1, 2, 5):
        views = [FakeView(running=k, decoding=k) for k in range(count)]
        if getattr(router, "period", 0):
            router.scrape(views, 0)
        assert 0 <= router.choose(request(count, session=count), views) < count


@pytest.mark.parametrize(
    ("text", "faults", "says"),
    [
        ("cache-aware:size=3", "", "no option 'size'; cache-aware has threshold, slack, ratio"),
        ("random:seed=3", "", "no option 'seed'; random has no options"),
        ("cache-aware:slack", "", "no name=number"),
        ("random", "no-load=3", "no-load takes no number"),
        ("random", "stale=0", "above 0"),
        ("random", "routers=0", "at least 1"),
    ],
)
def test_what_cannot_be_is_refused(text: str, faults: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_router(text, faults=faults)
