"""Laws that any queue obeys; a simulator that breaks one is wrong whatever it models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driving import RandomDrafter

from minilab.core.config import SchedulerConfig
from minilab.core.instance import Instance
from minilab.core.scheduler import Scheduler
from minilab.facts.cost_terms import LinearCost
from minilab.facts.gaps import GapRuns
from minilab.facts.request import Request
from minilab.facts.runlog import RunLog
from minilab.facts.workload import closed_loop, sessions, synthetic
from minilab.sim.cluster import Cluster
from minilab.sim.experiment import Experiment
from minilab.sim.tick_cost import TickCost

BASE = Experiment(kv_blocks=4000).with_(trace="synthetic", limit=400, rate=12.0)


def fixed_service(seconds: float, requests: list[Request]) -> RunLog:
    """One request at a time, each a single step of ``seconds``: a deterministic server."""
    cost = LinearCost(per_seq=0.0, per_context=0.0, per_pair=0.0, fixed=seconds)
    config = SchedulerConfig(10, max_num_seqs=1, max_num_batched_tokens=16)
    cluster = Cluster([Instance(Scheduler(config), TickCost(cost))])
    cluster.run(requests)
    return cluster.recorder.to_runlog(list(cluster.states.values()), {})


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_fixed_lengths_and_poisson_arrivals_are_m_d_1(load: float) -> None:
    """Mean wait = load / (2 (1 - load)) service times (Pollaczek-Khinchine)."""
    service = 0.01
    work = synthetic(load / service, 40_000, 8, 1, seed=3)
    log = fixed_service(service, work.requests)
    expected = service * load / (2 * (1 - load))
    assert log.requests["queue"].mean() == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("policy", ["mixed", "prefill-first", "decode-first"])
def test_littles_law(policy: str) -> None:
    """Mean number in the system = arrival rate x mean time in it, counted in two ways."""
    log = BASE.with_(policy=policy).run()
    arrival, finish = log.requests["arrival"], log.requests["finish"]
    events = np.concatenate([arrival, finish])
    change = np.concatenate([np.ones(len(arrival)), -np.ones(len(finish))])
    order = np.argsort(events, kind="stable")
    inside = np.cumsum(change[order])
    area = (inside[:-1] * np.diff(events[order])).sum()
    assert area == pytest.approx((finish - arrival).sum(), rel=1e-9)
    assert inside[-1] == 0 and inside.min() >= 0


def test_cause_comes_before_effect() -> None:
    log = BASE.run()
    columns = [log.requests[name] for name in ("arrival", "queued", "scheduled", "first_token")]
    for earlier, later in zip(columns, [*columns[1:], log.requests["finish"]], strict=True):
        assert (earlier <= later).all()


def test_an_instance_never_does_two_steps_at_once() -> None:
    """Runs of an instance follow each other without overlap, and no decode waits in between."""
    log = BASE.with_(instances=2).run()
    assert isinstance(log.gaps, GapRuns)
    runs = log.gaps.runs
    for instance in (0, 1):
        mine = {name: column[runs["instance"] == instance] for name, column in runs.items()}
        n = mine["n"]
        end = mine["start"] + n * mine["first"] + mine["slope"] * (n * (n - 1) // 2)
        assert (mine["start"][1:] >= end[:-1]).all()


def test_more_load_never_helps() -> None:
    """The same requests, arriving faster, wait longer on average."""
    waits = [
        np.nanmean(BASE.with_(speedup=s).run().requests["queue"]) for s in (1.0, 2.0, 4.0, 8.0)
    ]
    assert waits == sorted(waits)


def test_closed_loop_keeps_its_concurrency() -> None:
    """Never more than C outstanding, and C all the time until the last ones."""
    work = closed_loop(7, 60, 200, 30, seed=1)
    log = BASE.run(work)
    arrival, finish = log.requests["arrival"], log.requests["finish"]
    moments = np.sort(np.concatenate([arrival, finish]))
    outstanding = [((arrival <= t) & (finish > t)).sum() for t in moments]
    assert max(outstanding) == 7
    full = moments < np.sort(arrival)[-1]
    assert min(np.array(outstanding)[full]) == 7
    assert log.finished.all()


def test_a_turn_starts_when_the_last_answer_is_read() -> None:
    work = sessions(2.0, 12, 4, seed=5)
    log = BASE.run(work)
    row = {int(i): k for k, i in enumerate(log.requests["id"])}
    assert log.finished.all()
    for request in work.requests:
        if request.after is not None:
            before = log.requests["finish"][row[request.after]]
            at = log.requests["arrival"][row[request.id]]
            assert at == pytest.approx(max(before + request.think, request.arrival), abs=1e-9)


def test_chats_find_their_history_in_the_cache() -> None:
    """With one instance and room enough, a turn recomputes only what is new (to a block)."""
    work = sessions(0.5, 10, 4, system_tokens=512, user_tokens=100, output_tokens=50, seed=2)
    log = Experiment(kv_blocks=8000).run(work)
    for k, request in enumerate(work.requests):
        if request.after is not None:
            known = request.prompt_tokens - 100 - 1  # the last answer's last token has no KV yet
            assert log.requests["cached_tokens"][k] == known // 16 * 16


def test_speculation_yields_the_tokens_that_were_asked_for() -> None:
    log = BASE.with_(num_speculative_tokens=3, acceptance_rate=0.6).run()
    asked = [r.output_tokens for r in BASE.workload.load().requests]
    assert list(log.requests["output_tokens"]) == asked
    log.check()
    assert log.gaps is not None
    gaps = log.gaps.to_lists()
    share = (gaps.values == 0).mean()  # tokens that came with another one
    per_step = 1 / (1 - share)
    expected = (1 - 0.6**4) / (1 - 0.6)
    assert per_step == pytest.approx(expected, rel=0.03)


def test_a_decode_that_gets_no_token_in_a_step_has_one_long_gap() -> None:
    """Counts of 0 to 1 + drafts through the whole record: still n - 1 gaps for n tokens."""
    config = SchedulerConfig(60, 4, 32, 4)
    cost = LinearCost(per_seq=0.0, per_context=1e-6, per_pair=0.0, fixed=0.01)
    for seed in range(20):
        drafter = RandomDrafter(seed, stalls=True)
        cluster = Cluster([Instance(Scheduler(config), TickCost(cost), drafter=drafter)])
        cluster.run(synthetic(20.0, 12, 9, 20, seed=seed).requests)
        log = cluster.recorder.to_runlog(list(cluster.states.values()), {"num_blocks": 60}).check()
        assert log.gaps is not None and (log.gaps.counts() == 19).all()


def test_the_same_experiment_gives_the_same_log() -> None:
    """Same value, same result, bit for bit; another seed, another result."""
    again = Experiment.from_dict(BASE.to_dict())
    assert again == BASE and again.key == BASE.key and hash(again) == hash(BASE)
    one, two = BASE.run(), again.run()
    assert one.difference(two) is None
    other = BASE.with_(seed=1)
    assert other.key != BASE.key
    assert one.difference(other.run()) is not None


def test_a_request_that_cannot_fit_is_counted_and_not_served() -> None:
    work = synthetic(5.0, 20, 100, 10, seed=0)
    giant = replace(work, requests=[r._replace(prompt_tokens=10**6) if r.id == 3 else r
                                    for r in work.requests])  # fmt: skip
    log = Experiment(kv_blocks=100).run(giant)
    assert log.requests["status"][3] == "rejected" and log.finished.sum() == 19
    log.check()
