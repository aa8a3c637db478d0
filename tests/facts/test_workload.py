"""Generators that drift or lie about their shape, values that change in place, checks that pass bad
rows: each test names the one it exists for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilab.facts import arrivals, workload
from minilab.facts.arrivals import lognormal, uniform
from minilab.facts.errors import InputError
from minilab.facts.request import Request
from minilab.facts.workload import Workload, agents, closed_loop, documents, sessions, synthetic

GENERATORS = {
    "synthetic": lambda seed: synthetic(2, 50, lognormal(500, 3000), 60, seed=seed, groups=5),
    "closed_loop": lambda seed: closed_loop(4, 50, uniform(100, 0.5), 10, seed=seed),
    "documents": lambda seed: documents(2, 50, 7, 4096, skew=1, seed=seed),
    "sessions": lambda seed: sessions(1, 20, uniform(4, 0.7), seed=seed),
    "agents": lambda seed: agents(1, 10, 3, task_tokens=uniform(90, 0.9), seed=seed),
}


def small(**changes: object) -> Request:
    base = Request(0, 0.5, 30, 4, ((7, 10), (8, 20)), 9, "t", "chat", "s", "lora", 3, None, 0.25)
    return base._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_is_one_valid_workload(name: str) -> None:
    """Hidden global randomness, or segments, ids and `after` that do not fit together."""
    first, again, other = (GENERATORS[name](seed) for seed in (1, 1, 2))
    assert first.validate().hash() == again.hash() != other.hash()
    assert [r.id for r in first.requests] == list(range(len(first.requests)))
    assert first.seed == 1 and first.source["kind"] == "synthetic"


@pytest.mark.parametrize(
    ("kind", "cv", "expected"),
    [("poisson", 1.0, 1.0), ("gamma", 3.0, 3.0), ("gamma", 0.5, 0.5), ("constant", 1.0, 0.0)],
)
def test_arrivals_have_their_rate_and_cv(kind: str, cv: float, expected: float) -> None:
    """A gamma with shape and scale swapped keeps its rate and loses its CV."""
    known = synthetic(5, 40_000, arrivals=kind, cv=cv, seed=3).stats()
    assert known["rate"] == pytest.approx(5, rel=0.05)
    assert known["cv"] == pytest.approx(expected, rel=0.05, abs=1e-9)


def test_another_rate_keeps_the_requests() -> None:
    """One stream for everything would draw other lengths at another rate: no paired comparison."""
    slow, fast = (synthetic(rate, 100, lognormal(300, 900), seed=4) for rate in (1, 10))
    gaps = [np.array([r.arrival for r in w.requests]) for w in (slow, fast)]
    assert np.allclose(gaps[0], 10 * gaps[1])
    assert [r[2:] for r in slow.requests] == [r[2:] for r in fast.requests]


def test_lognormal_meets_mean_and_p99() -> None:
    """Taking the p99 for a sigma, or forgetting sigma**2 / 2 in the mean."""
    draw = lognormal(1000, 5000).draw(np.random.default_rng(5), 200_000)
    assert draw.mean() == pytest.approx(1000, rel=0.02)
    assert np.percentile(draw, 99) == pytest.approx(5000, rel=0.03)


def test_uniform_reaches_both_ends() -> None:
    """An open interval would never draw the largest length."""
    draw = uniform(10, 0.2).draw(np.random.default_rng(6), 1000)
    assert sorted(set(draw.tolist())) == [8, 9, 10, 11, 12]


def test_groups_share_their_front_and_only_that() -> None:
    """Own text that repeats across requests would be counted as reuse."""
    work = synthetic(1, 200, 50, groups=4, shared_tokens=uniform(300, 0.5), seed=7)
    fronts = {r.prompt[0] for r in work.requests if r.prompt}
    own = [r.prompt[1][0] for r in work.requests if r.prompt]
    assert len(fronts) == 4 and len(set(own)) == 200
    assert not set(own) & {content for content, _ in fronts}
    assert all(r.prompt_tokens == r.prompt[0][1] + 50 for r in work.requests if r.prompt)


def test_skewed_documents_are_unequally_popular() -> None:
    """Skew with the wrong sign makes the last document the popular one."""
    work = documents(1, 4000, 10, skew=1.0, seed=8)
    asked = np.bincount([r.prompt[0][0] for r in work.requests if r.prompt], minlength=10)
    assert asked[0] / 4000 == pytest.approx(1 / sum(1 / k for k in range(1, 11)), abs=0.03)
    assert asked[0] > 5 * asked[9]


def test_tenants_and_classes_by_weight() -> None:
    """Unnormalised weights, or salts where none were asked for."""
    mix = {"tenants": {"a": 3, "b": 1}, "slo_classes": {"chat": 0.2, "batch": 0.2}}
    work = synthetic(1, 4000, seed=9, **mix)
    assert sum(r.tenant == "a" for r in work.requests) / 4000 == pytest.approx(0.75, abs=0.03)
    assert sum(r.slo_class == "chat" for r in work.requests) / 4000 == pytest.approx(0.5, abs=0.03)
    assert {r.cache_salt for r in work.requests} == {None}
    salted = synthetic(1, 100, seed=9, salt_tenants=True, **mix)
    assert all(r.cache_salt == r.tenant for r in salted.requests)


def test_a_turn_quotes_the_whole_history() -> None:
    """A prompt without the last answer, or with it before the user's words, shares too little."""
    work = sessions(0.5, 30, uniform(4, 0.75), think=5, seed=10)
    followers = [r for r in work.requests if r.after is not None]
    for r in followers:
        before = work.requests[r.after or 0]
        assert r.session == before.session and r.prompt and before.prompt
        answer = (before.output_content, before.output_tokens)
        assert r.prompt[:-1] == (*before.prompt, answer)
        assert r.arrival == pytest.approx(before.arrival + r.think)
    assert len(followers) == len(work.requests) - 30
    assert any(a.session != b.session for a, b in zip(work.requests[1:], followers, strict=False))


def test_agents_fork_and_join() -> None:
    """Children that do not share the plan, or a join that forgets one of them."""
    for family in np.array_split(np.arange(40), 8):
        rows = agents(0.001, 8, 3, output_tokens=uniform(50, 0.8), seed=11).requests
        plan, *children, join = (rows[k] for k in family)
        assert plan.prompt and join.prompt
        shared = (*plan.prompt, (plan.output_content, plan.output_tokens))
        assert all(c.prompt and c.prompt[:-1] == shared and c.after == plan.id for c in children)
        answers = {(c.output_content, c.output_tokens) for c in children}
        assert join.prompt[: len(shared)] == shared
        assert set(join.prompt[len(shared) : -1]) == answers and len(answers) == 3
        assert join.after == max(children, key=lambda c: c.output_tokens).id


def test_closed_loop_waits_for_slots_only() -> None:
    """Arrival times left in a closed loop would hold a client back."""
    work = closed_loop(8, 20, 100, 10)
    assert work.concurrency == 8 and {r.arrival for r in work.requests} == {0.0}
    assert work.stats()["rate"] is None
    with pytest.raises(InputError, match="no rate"):
        work.scaled_to_rate(2)


def test_values_do_not_change_in_place() -> None:
    """speedup on a shared list would change every other user of it."""
    work = synthetic(2, 100, seed=12)
    before = work.hash()
    quick, even = work.speedup(4), work.scaled_to_rate(7)
    assert quick.requests[-1].arrival == work.requests[-1].arrival / 4
    assert even.stats()["rate"] == pytest.approx(7)
    assert len(work.limit(10).requests) == 10 and work.limit(None) is work
    assert work.hash() == before
    assert quick.requests[5][2:] == work.requests[5][2:]


def test_hash_is_of_the_content() -> None:
    """A field left out of the hash lets two different runs pass for one."""
    base = Workload([small()])
    changes = {"arrival": 0.75, "prompt_tokens": 31, "output_tokens": 5, "output_content": 10}
    changes |= {"tenant": "u", "slo_class": "x", "cache_salt": None, "adapter": "", "id": 1}
    changes |= {"session": None, "after": 0, "think": 0.5, "prompt": ((7, 11), (8, 19))}
    assert set(changes) == set(Request._fields)
    hashes = {Workload([small(**{name: new})]).hash() for name, new in changes.items()}
    hashes |= {base.hash(), replace(base, concurrency=1).hash(), Workload([small()] * 2).hash()}
    assert len(hashes) == len(changes) + 3
    assert replace(base, seed=5, source={"name": "elsewhere"}).hash() == base.hash()
    plain = small(prompt_tokens=np.int64(30), arrival=np.float64(0.5), session=np.int64(3))
    assert Workload([plain]).hash() == base.hash()
    assert base.hash()[:16] == "c0b3b548be229402"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arrival": -1.0}, "arrival -1.0"),
        ({"arrival": math.nan}, "arrival nan"),
        ({"arrival": 0.25}, "sort by arrival"),
        ({"arrival": "soon"}, "arrival 'soon'"),
        ({"output_tokens": 0}, "output_tokens 0"),
        ({"prompt_tokens": 10_000_001, "prompt": None}, "prompt_tokens 10000001"),
        ({"prompt_tokens": 30.5}, "prompt_tokens 30.5"),
        ({"id": 0}, "id 0"),
        ({"prompt": ((7, 10), (8, 19))}, "prompt segments of 29.0"),
        ({"prompt": ((7, 30), (8, 0))}, "length >= 1"),
        ({"prompt": ((1 << 63, 30),)}, "below 2\\*\\*63"),
        ({"after": 1}, "after 1"),
        ({"after": 2}, "after 2"),
        ({"think": math.inf}, "think inf"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, object], words: str) -> None:
    """A row that cannot be replayed must be named before the simulator hangs on it."""
    rows = [small(), small(id=1, **{k: v for k, v in changes.items() if k != "id"}), small(id=2)]
    if "id" in changes:
        rows[1] = rows[1]._replace(id=0)
    with pytest.raises(InputError, match=words) as error:
        Workload(rows).validate()
    message = str(error.value)
    assert "\n" not in message
    assert "request 1" in message or message.startswith("prompt segments:")


@pytest.mark.parametrize(
    "call",
    [
        lambda: Workload([]).validate(),
        lambda: Workload([]).stats(),
        lambda: Workload([small()], concurrency=0).validate(),
        lambda: synthetic(0, 10),
        lambda: synthetic(math.nan, 10),
        lambda: synthetic(1, 0),
        lambda: synthetic(1, 10, 0),
        lambda: synthetic(1, 10, arrivals="bursty"),
        lambda: synthetic(1, 10, arrivals="gamma", cv=-1),
        lambda: synthetic(1, 10, seed=-1),
        lambda: synthetic(1, 10, tenants={"a": 0}),
        lambda: synthetic(1, 2).limit(0),
        lambda: synthetic(1, 2).speedup(0),
        lambda: synthetic(1, 2).with_arrivals([0.0]),
        lambda: synthetic(1, 2).with_arrivals([1.0, 0.0]),
        lambda: lognormal(100, 1600),
        lambda: lognormal(100, 50),
        lambda: uniform(100, 1.5),
        lambda: documents(1, 10, 0),
        lambda: sessions(1, 2, system_tokens=-1),
        lambda: sessions(1, 2, think=-1),
    ],
)
def test_bad_arguments_are_one_line(call: object) -> None:
    """numpy's own errors say nothing of rates, tokens or the way out."""
    with pytest.raises(InputError) as error:
        call()  # type: ignore[operator]
    assert "\n" not in str(error.value) and str(error.value).count(";") >= 2


@given(st.lists(st.tuples(st.floats(0, 9), st.booleans()), min_size=1, max_size=12))
def test_renumbering_keeps_who_waits_for_whom(steps: list[tuple[float, bool]]) -> None:
    """Sorting by arrival without carrying `after` along would tie turns to strangers."""
    rows: list[Request] = []
    when = 0.0
    for pause, follows in steps:
        when = when + pause if follows else pause
        arrivals.turn(rows, when, (), 5, 1, 0, len(rows) - 1 if follows and rows else None)
    ordered = Workload(arrivals.in_order(rows), source=workload._source("test")).validate()
    for r in ordered.requests:
        old = next(row for row in rows if row.output_content == r.output_content)
        if old.after is not None and r.after is not None:
            leader = ordered.requests[r.after]
            assert leader.output_content == rows[old.after].output_content
        else:
            assert (r.after, old.after) == (None, None)
