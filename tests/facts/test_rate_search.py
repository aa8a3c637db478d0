"""Rate search against queues whose answer is known.

What these tests exist for: a rate that is total where it should be per GPU, a bracket's end sold as
an answer, a resumed search that runs everything again or ends elsewhere, noise that goes unsaid.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.rate_search import Evaluation, max_rate
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.slo import mean_ci

SERVICE = 0.1  # s, fixed


def log_of(arrival: np.ndarray, ttft: np.ndarray) -> RunLog:
    requests = blank_requests(arrival.size)
    requests["arrival"] = arrival
    requests["first_token"] = arrival + ttft
    requests["finish"] = requests["first_token"]
    requests["output_tokens"][:] = 1
    requests["status"][:] = "finished"
    return RunLog(requests, GapLists.of([[]] * arrival.size))


def md1_queue(rate: float, seed: int, count: int = 20_000) -> RunLog:
    """Poisson arrivals, one server, fixed service (Lindley's recursion)."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, size=count))
    step = SERVICE - np.diff(arrival, prepend=arrival[0])
    step[0] = 0.0
    walk = np.cumsum(step)
    wait = walk - np.minimum.accumulate(walk)
    return log_of(arrival, wait + SERVICE)


def md1_attainment(rate: float, limit: float) -> float:
    """P(wait + service <= limit) in M/D/1 (Erlang 1909)."""
    load, time = rate * SERVICE, limit - SERVICE
    if load >= 1 or time < 0:
        return 0.0
    terms = (
        (x := rate * (k * SERVICE - time)) ** k / math.factorial(k) * math.exp(-x)
        for k in range(int(time / SERVICE) + 1)
    )
    return (1 - load) * math.fsum(terms)


def exact_share(attained, count: int = 5000):
    """A server without chance: at each rate exactly the share ``attained(rate, seed)`` is good."""

    def run(rate: float, seed: int) -> RunLog:
        ttft = np.where(np.arange(count) < round(attained(rate, seed) * count), 0.1, 9.0)
        return log_of(np.arange(count) / rate, ttft)

    return run


def root(attained, target: float, low: float, high: float) -> float:
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if attained(middle) >= target else (low, middle)
    return low


@pytest.mark.parametrize(("limit", "target"), [(0.25, 0.9), (0.5, 0.9), (0.5, 0.99), (0.15, 0.6)])
def test_bisection_finds_the_analytic_limit_of_md1(limit: float, target: float) -> None:
    def attained(rate: float, seed: int = 0) -> float:
        return md1_attainment(rate, limit)

    want = root(attained, target, 0.01, 9.99)
    found = max_rate(exact_share(attained), "ttft=1", lo=0.05, hi=20, target=target, rel_tol=0.01)
    assert found.verdict == "found" and found.reason == "" and found.notes == ()
    assert want * 0.985 <= found.rate_per_gpu <= want * 1.002  # 1/5000 of rounding in the share
    assert (found.low, found.high) == pytest.approx(
        (found.rate_per_gpu,) * 2
    )  # no chance, no width


def test_the_simulated_queue_agrees_with_the_formula() -> None:
    want = root(lambda rate: md1_attainment(rate, 0.4), 0.9, 0.01, 9.99)
    found = max_rate(md1_queue, "ttft=0.4", lo=1, hi=20, rel_tol=0.01, seeds=(0, 1, 2, 3))
    assert found.rate_per_gpu == pytest.approx(want, rel=0.02)
    assert found.low is not None and found.high is not None
    assert found.low < found.rate_per_gpu < found.high and found.high - found.low < 0.1 * want
    assert len(set(found.per_seed.values())) > 1
    assert found.goodput_per_gpu == pytest.approx(0.9 * found.rate_per_gpu, rel=0.03)
    json.dumps(found.as_dict())


def test_rates_are_per_gpu_and_the_interval_is_over_seeds() -> None:
    limits = {0: 8.0, 1: 10.0, 2: 12.0}
    run = exact_share(lambda rate, seed: 1.0 if rate <= limits[seed] else 0.0)
    found = max_rate(run, "ttft=1", gpus=4, lo=1, hi=64, rel_tol=0.001)
    assert found.per_seed == pytest.approx({0: 2.0, 1: 2.5, 2: 3.0}, rel=0.001)
    assert found.rate_per_gpu == pytest.approx(2.5, rel=0.001)
    assert (found.low, found.high) == pytest.approx(mean_ci([2.0, 2.5, 3.0])[1:], rel=0.01)
    assert found.goodput_per_gpu == pytest.approx(2.5, rel=0.002)


def test_the_answer_itself_met_the_target_and_its_neighbour_did_not() -> None:
    run = exact_share(lambda rate, seed: max(0.0, 1 - rate / 50))
    found = max_rate(run, "ttft=1", lo=0.1, hi=40, seeds=(3,), rel_tol=0.02)
    tried = {e.rate: e.attainment for e in found.evaluations}
    assert tried[found.rate_per_gpu] >= 0.9
    above = min(rate for rate in tried if rate > found.rate_per_gpu)
    assert tried[above] < 0.9 and above <= found.rate_per_gpu * 1.02
    assert (found.low, found.high) == (None, None)  # one seed bounds nothing


def test_never_met_and_always_met_are_said() -> None:
    never = max_rate(exact_share(lambda rate, seed: 0.5), "ttft=1", lo=1, hi=8)
    assert (never.verdict, never.rate_per_gpu, never.goodput_per_gpu) == ("never met", 0.0, 0.0)
    assert "below 0.9 even at 1 requests/s; try a lower lo" in never.reason
    always = max_rate(exact_share(lambda rate, seed: 1.0), "ttft=1", gpus=2, lo=1, hi=8)
    assert (always.verdict, always.rate_per_gpu, always.high) == ("at least", 4.0, None)
    assert "3 of 3 seeds still met 0.9 at 8 requests/s; try a higher hi" in always.reason
    some = max_rate(exact_share(lambda rate, seed: float(seed != 1)), "ttft=1", lo=1, hi=8)
    assert some.verdict == "at least" and some.reason.startswith("2 of 3")
    assert some.per_seed[1] == 0.0 and "seeds [1] missed 0.9" in some.notes[0]


def test_attainment_that_rises_with_the_rate_is_reported() -> None:
    def wobbly(rate: float, seed: int) -> float:
        return 0.95 - 0.01 * rate + (0.06 if 4 < rate < 6 and seed == 1 else 0.0)

    found = max_rate(exact_share(wobbly), "ttft=1", lo=2, hi=16, rel_tol=0.01)
    assert len(found.notes) == 1
    assert "seed 1: attainment rises with the rate" in found.notes[0]


def test_a_resumed_search_runs_only_what_is_new_and_ends_the_same() -> None:
    calls: list[tuple[float, int]] = []
    base = exact_share(lambda rate, seed: max(0.0, 1 - rate / (50 + seed)))

    def run(rate: float, seed: int) -> RunLog:
        calls.append((rate, seed))
        return base(rate, seed)

    cache: dict[tuple[float, int], float] = {}
    seen: list[Evaluation] = []

    def stop_early(evaluation: Evaluation) -> None:
        assert cache[evaluation.rate, evaluation.seed] == evaluation.attainment
        seen.append(evaluation)
        if len(seen) == 7:
            raise KeyboardInterrupt

    arguments = {"lo": 0.5, "hi": 40.0, "cache": cache}
    with pytest.raises(KeyboardInterrupt):
        max_rate(run, "ttft=1", **arguments, progress=stop_early)
    assert len(cache) == len(calls) == 7
    first = list(calls)
    found = max_rate(run, "ttft=1", **arguments)
    fresh = max_rate(base, "ttft=1", lo=0.5, hi=40.0)
    assert found == fresh
    again = [call for call in calls[7:] if call in first]
    assert len(again) <= 1  # at most the answer itself, for its goodput
    assert len(set(calls)) == len(cache)


def test_an_slo_the_logs_cannot_tell_stops_the_search() -> None:
    run = exact_share(lambda rate, seed: 1.0)
    with pytest.raises(InputError, match=r"rate search at 1 requests/s, seed 0: SLO on queue"):
        max_rate(run, "queue=1", lo=1, hi=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lo": 0}, "need 0 < lo < hi"),
        ({"lo": 9}, "need 0 < lo < hi"),
        ({"hi": math.inf}, "need 0 < lo < hi"),
        ({"target": 90}, "target 90: is a share"),
        ({"target": 0}, "target 0: is a share"),
        ({"seeds": ()}, "need at least one, each once"),
        ({"seeds": (1, 1)}, "need at least one, each once"),
        ({"rel_tol": 0}, "rel_tol 0: must be"),
        ({"gpus": 0}, "gpus 0: must be above 0"),
    ],
)
def test_arguments_outside_their_limits(change: dict, message: str) -> None:
    arguments = {"lo": 1, "hi": 8} | change
    with pytest.raises(InputError, match=message):
        max_rate(exact_share(lambda rate, seed: 1.0), "ttft=1", **arguments)
