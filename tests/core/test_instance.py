"""Runs on a virtual clock: cuts land on step boundaries, and views agree with stepping."""

from __future__ import annotations

import random

from driving import config, state
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import COSTS

from minilab.core.instance import Instance, steps_begun
from minilab.core.instance_view import InstanceView
from minilab.core.ranks import RankedScheduler, ranked_instance
from minilab.core.scheduler import Scheduler
from minilab.facts.request import Request
from minilab.facts.ticks import to_ticks
from minilab.sim.cluster import Cluster
from minilab.sim.tick_cost import TickCost


@given(st.integers(0, 10**15), st.integers(1, 10**12), st.integers(0, 10**9), st.integers(1, 10**4))
def test_steps_begun_is_exact(elapsed: int, first: int, slope: int, steps: int) -> None:
    """Against its definition, at sizes where floats would be off by one."""
    n = steps_begun(elapsed, first, slope, steps)
    assert 1 <= n <= steps

    def length(k: int) -> int:
        return k * first + slope * (k * (k - 1) // 2)

    if n < steps:
        assert length(n) >= elapsed
    if n > 1:
        assert length(n - 1) < elapsed


def test_an_event_on_a_step_boundary_is_seen_by_the_next_step() -> None:
    for k in range(1, 6):
        assert steps_begun(10 * k, 10, 0, 100) == k
        assert steps_begun(10 * k + 1, 10, 0, 100) == k + 1


Row = tuple[int, ...]


def world(seed: int, skip: bool, ranks: int = 1) -> Cluster:
    rng = random.Random(seed)
    cost = TickCost(COSTS["linear"])
    limits = config(60, max_num_seqs=5, enable_prefix_caching=True)
    if ranks > 1:
        schedulers = [Scheduler(limits) for _ in range(ranks)]
        cluster = Cluster([ranked_instance(schedulers, cost, skip=skip)])
    else:
        cluster = Cluster([Instance(Scheduler(limits), cost, skip=skip)])
    requests, at = [], 0.0
    for i in range(25):
        at += rng.choice([0.0, 0.05, 0.4])
        prompt = rng.randint(1, 30)
        text = ((rng.randint(0, 1), prompt),)
        requests.append(Request(i, at, prompt, rng.randint(1, 30), text))
    cluster.requests = requests  # type: ignore[attr-defined]
    return cluster


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_views_inside_a_run_agree_with_stepping(seed: int) -> None:
    """A router that polls in the middle of a skipped run must read what stepping would show."""
    seen = []
    rng = random.Random(seed)
    moments = sorted(rng.randrange(to_ticks(8.0)) for _ in range(30))
    probe = state(999, 20, 1, ((0, 20),))
    for skip in (True, False):
        cluster = world(seed, skip)
        rows: list[Row] = []
        view: InstanceView = cluster.views[0]
        for moment in moments:

            def read(t: int = moment, rows: list[Row] = rows, view: InstanceView = view) -> None:
                probe.queued_at = t
                load = (view.running, view.waiting, view.tokens_at(t), view.blocks_at(t))
                rows.append((*load, view.match(probe)))

            cluster.at(moment, read)
        cluster.run(cluster.requests)  # type: ignore[attr-defined]
        seen.append(rows)
    assert seen[0] == seen[1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_ranks_share_a_clock_and_skip_like_one(seed: int, ranks: int) -> None:
    """R schedulers in step: skipping equals stepping, and a step lasts as long as its slowest."""
    logs = []
    for skip in (True, False):
        cluster = world(seed, skip, ranks)
        cluster.run(cluster.requests)  # type: ignore[attr-defined]
        states = sorted(cluster.states.values(), key=lambda s: s.id)
        assert all(s.num_output_tokens == s.max_tokens for s in states)
        logs.append(
            [(s.scheduled_at, s.first_token_at, cluster.recorder.finished_at[s.id]) for s in states]
        )
        scheduler = cluster.instances[0].scheduler
        assert isinstance(scheduler, RankedScheduler)
        for rank in scheduler.ranks:
            rank.pool.check([])
    assert logs[0] == logs[1]


def test_a_rank_waits_for_the_slowest() -> None:
    """One rank prefills 30 tokens, the other decodes 1: both steps last as long as the prefill."""
    cost = TickCost(COSTS["linear"])
    limits = config(60, max_num_seqs=1)
    alone = Cluster([Instance(Scheduler(limits), cost)])
    alone.run([Request(0, 0.0, 1, 2)])
    both = Cluster([ranked_instance([Scheduler(limits), Scheduler(limits)], cost)])
    both.run([Request(0, 0.0, 1, 2), Request(1, 0.0, 30, 1)])
    assert both.states[0].first_token_at > alone.states[0].first_token_at
    assert both.states[0].first_token_at == both.states[1].first_token_at
