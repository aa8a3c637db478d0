"""Routers in the cluster: scrapes, counts of their own, refusals, the seed of an experiment."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment

SMALL = Experiment(instances=4).with_(
    trace="synthetic", limit=300, rate=40.0, prompt_tokens=600, output_tokens=60, jitter=0.5
)


def share(experiment: Experiment) -> list[int]:
    placed = Counter(experiment.run().requests["instance"].tolist())
    return [placed[k] for k in range(experiment.instances)]


def test_the_seed_of_an_experiment_reaches_its_router() -> None:
    """Two repeats with one placement are one repeat."""
    logs = [SMALL.with_(router="random", seed=seed).run() for seed in (1, 1, 2)]
    one, same, other = (log.requests["instance"].tolist() for log in logs)
    assert one == same != other


def test_every_placed_request_is_counted_off_once() -> None:
    """A router that misses ends thinks that all are busy; one told twice, that all are idle."""
    from minilab.sim.cluster import Cluster

    cluster: Cluster = SMALL.with_(router="least-load", router_faults="routers=3").build()
    work = SMALL.workload.load()
    cluster.abort(5, 1 << 40)
    cluster.run(work.requests)
    router: Any = cluster.router
    assert not router._sent_by
    assert not any(view.prompts for one in router.routers for view in one.seen(()))


def test_a_scrape_that_comes_too_rarely_sends_bursts_to_one_instance() -> None:
    fresh = SMALL.with_(router="least-load")
    even = max(share(fresh)) / 75
    stale = share(fresh.with_(router_faults="stale=3"))
    assert max(stale) / 75 > even + 0.1
    assert sum(stale) == 300
    often = fresh.with_(router_faults="stale=0.001").run()
    assert often.finished.all()


def test_scrapes_end_with_the_run() -> None:
    log = SMALL.with_(router="least-load", router_faults="stale=0.5", limit=3).run()
    assert len(log) == 3 and log.finished.all()


def test_early_rejection_keeps_the_promise_for_the_rest() -> None:
    """Refused at the door, counted as rejected, and nobody who was let in waits for long."""
    full = SMALL.with_(rate=400.0, limit=600, prompt_tokens=4000)
    served = full.with_(router="transfer-queue-prefill").run()
    limited = full.with_(router="transfer-queue-prefill:limit=0.5").run()
    refused = limited.requests["status"] == "rejected"
    assert 0 < refused.sum() < 600 and (limited.requests["instance"][refused] == -1).all()
    assert np.isnan(limited.requests["first_token"][refused]).all()
    ttft = [log.requests["first_token"] - log.requests["arrival"] for log in (served, limited)]
    assert np.nanmax(ttft[1]) < 0.5 * np.nanmax(ttft[0])


def test_no_eviction_feedback_believes_in_what_is_gone() -> None:
    """With a pool that evicts, the router's own tree sends to where the text was."""
    groups = Experiment(instances=2, kv_blocks=600, router="longest-prefix").with_(
        trace="mooncake-conversation", limit=600
    )
    log = groups.with_(block_size=512, kv_blocks=400).run()
    blind = groups.with_(block_size=512, kv_blocks=400, router_faults="no-eviction-feedback=512")
    assert log.requests["cached_tokens"].sum() > blind.run().requests["cached_tokens"].sum()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"router": "longest"}, "longest-prefix"),
        ({"router": "cache-aware:size=1"}, "no option 'size'"),
        ({"router_faults": "stail=1"}, "stale"),
        ({"router_faults": "stale=x"}, "no name=number"),
        ({"prefix_index": "tree"}, "radix"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        SMALL.with_(**change).check()


def test_radix_and_hash_chain_serve_a_trace_alike() -> None:
    """Where nothing is evicted: every request, every time."""
    work = Experiment(instances=2, block_size=512, kv_blocks=40000, router="longest-prefix").with_(
        trace="mooncake-conversation", limit=400
    )
    assert work.run().difference(work.with_(prefix_index="radix").run(), 0.0) is None
