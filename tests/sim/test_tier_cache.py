"""Tiers on the simulated clock: bytes over bandwidth, in the background, only where it pays."""

from __future__ import annotations

from typing import Any

import pytest

from minilab.core.request import RequestState
from minilab.core.tiers import TierSpec, TierStore, always, beats_recompute
from minilab.facts.errors import InputError
from minilab.facts.request import Request
from minilab.facts.ticks import to_ticks
from minilab.sim.experiment import Experiment
from minilab.sim.tier_cache import TierCache

CPU = TierSpec("cpu", 1, 100.0, 50.0, 0.5)
SSD = TierSpec("ssd", 1, 20.0, 10.0, 1.0)


def cache(specs: Any = (CPU,), capacity: Any = (9,), rule: Any = beats_recompute) -> TierCache:
    """Blocks of 10 tokens and 100 bytes; a token takes 0.2 s to compute."""
    stores = [TierStore(n) for n in capacity]
    return TierCache(specs, stores, 10, 100.0, lambda start, n: 0.2 * n, rule)


def request(keys: list[int], tokens: int | None = None) -> RequestState:
    made = RequestState(Request(0, 0.0, tokens or 10 * len(keys) + 5, 1))
    made.block_hashes, made.num_published = list(keys), len(keys)
    return made


def at(tiers: TierCache, seconds: float) -> None:
    tiers.clock = lambda: to_ticks(seconds)


def test_a_load_takes_latency_and_bytes_over_bandwidth() -> None:
    tiers = cache()
    tiers.save(request([1, 2, 3]))
    at(tiers, 100.0)
    wanted = request([1, 2, 3])
    assert tiers.get_num_new_matched_tokens(wanted, 0) == 30
    assert tiers.start_load(wanted) == to_ticks(100.0 + 0.5 + 3.0)
    assert tiers.loaded_tokens == [30]


def test_a_write_is_in_the_background_and_takes_its_time() -> None:
    tiers = cache()
    tiers.save(request([1, 2]))  # 0.5 s, then 2 s a block
    at(tiers, 2.6)
    assert tiers.matched_tokens(request([1, 2]), 0) == 10
    at(tiers, 4.6)
    assert tiers.matched_tokens(request([1, 2]), 0) == 20


def test_the_last_token_is_always_computed() -> None:
    tiers = cache(rule=always)
    tiers.save(request([1, 2]))
    at(tiers, 50.0)
    assert tiers.get_num_new_matched_tokens(request([1, 2], tokens=20), 0) == 10


def test_loads_queue_for_the_channel_and_the_rule_sees_the_queue() -> None:
    tiers = cache()
    tiers.save(request([1, 2, 3]))
    at(tiers, 100.0)
    wanted = request([1, 2, 3])
    assert tiers.get_num_new_matched_tokens(wanted, 0) == 30
    assert tiers.start_load(wanted) == to_ticks(103.5)
    assert tiers.get_num_new_matched_tokens(request([1, 2, 3]), 0) == 0, "7 s against 6 s"
    assert tiers.skipped_tokens == 30


def test_what_a_tier_evicts_sinks_and_comes_back_through_it() -> None:
    tiers = cache((CPU, SSD), (2, 9), always)
    tiers.save(request([1, 2, 3]))
    assert [len(store) for store in tiers.stores] == [2, 1]
    at(tiers, 100.0)
    wanted = request([1, 2, 3])
    assert tiers.get_num_new_matched_tokens(wanted, 0) == 30
    tiers.start_load(wanted)
    assert sum(tiers.loaded_tokens) == 30 and all(tiers.loaded_tokens)


def test_a_shared_store_helps_an_instance_that_never_saw_the_text() -> None:
    store = TierStore(9)
    remote = TierSpec("remote", 1, 100.0, 100.0, 0.1, shared=True)
    one, two = (
        TierCache((remote,), (store,), 10, 100.0, lambda s, n: 0.2 * n, beats_recompute)
        for _ in range(2)
    )
    one.save(request([1, 2]))
    at(two, 50.0)
    assert two.get_num_new_matched_tokens(request([1, 2]), 0) == 20
    assert two.matched_tokens(request([1, 2]), 0) == 0, "it is no reason to prefer an instance"


# -- whole runs ---------------------------------------------------------------------------------

SMALL = Experiment(instances=2, block_size=512, kv_blocks=300).with_(
    trace="mooncake-conversation", limit=800, rate=1.0
)


def first_tokens(experiment: Experiment) -> Any:
    requests = experiment.run().requests
    return requests["first_token"] - requests["arrival"]


def test_a_fast_tier_lowers_the_first_token_and_a_slow_one_changes_nothing() -> None:
    """1 GB/s moves a token of KV in 131 us, which takes some 20 us to compute."""
    none = first_tokens(SMALL).mean()
    assert first_tokens(SMALL.with_(tiers="cpu:gib=400:read=50e9")).mean() < 0.97 * none
    slow = SMALL.with_(tiers="cpu:gib=400:read=1e9")
    assert first_tokens(slow).mean() == pytest.approx(none, rel=1e-9)
    assert first_tokens(slow.with_(tier_rule="always")).mean() > 1.1 * none


def test_skipping_and_stepping_agree_with_tiers() -> None:
    """Loads are external events: whatever is skipped must stop for them."""
    with_tiers = SMALL.with_(tiers="cpu:gib=200:read=50e9+remote:gib=800:read=40e9", limit=250)
    assert with_tiers.run().difference(with_tiers.run(skip=False), 0.0) is None


def test_an_inclusive_tier_no_larger_than_hbm_adds_nothing() -> None:
    """Both keep the most recent blocks: the smaller one holds nothing that the larger lacks."""
    log = SMALL.with_(tiers="cpu:gib=15:read=50e9").run()  # 240 blocks against 300
    loaded = sum(one["cpu"]["loaded_tokens"] for one in log.meta["tiers"])
    assert loaded < 0.002 * log.requests["prompt_tokens"].sum()
    assert sum(one["cpu"]["stored_blocks"] for one in log.meta["tiers"]) > 1000


def test_one_remote_store_serves_what_another_instance_computed() -> None:
    """Round robin spreads equal prompts over instances: only a store of all has most of them."""
    turns = SMALL.with_(instances=4, kv_blocks=300, limit=400)
    loaded = {}
    for tier in ("cpu", "remote"):
        log = turns.with_(tiers=f"{tier}:gib=400:read=5e+10:write=5e+10").run()
        loaded[tier] = sum(one[tier]["loaded_tokens"] for one in log.meta["tiers"])
    assert loaded["remote"] > 1.3 * loaded["cpu"] > 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tiers": "tape"}, "known are cpu"),
        ({"tiers": "cpu", "tier_rule": "never"}, "beats-recompute"),
        ({"tiers": "cpu", "prefix_cache": False}, "use the prefix cache"),
        ({"tiers": "cpu", "prefix_index": "radix"}, "hash-chain"),
    ],
)
def test_tiers_that_cannot_be_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        SMALL.with_(**change).check()
