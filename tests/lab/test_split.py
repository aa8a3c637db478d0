"""The arithmetic of a split says what the simulator then shows, or the chapter derives nonsense."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.slo import metric
from minilab.lab.split import (
    LEAST_BUDGET,
    break_even,
    pools,
    prefill_seconds,
    step_seconds,
    tight_budget,
    wire_seconds_per_token,
    work,
)
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

BASE = Experiment(prefix_cache=False).with_(
    trace="synthetic", limit=80, prompt_tokens=2000, output_tokens=300, rate=3.0
)


def stall(pair: PdExperiment, prompt: int, mode: str) -> float:
    run = pair.with_(prompt_tokens=prompt, rate=min(4.0, 8000 / prompt), pd_mode=mode).run()
    return float(np.median(metric(run, "stall")))


@pytest.mark.parametrize("gigabytes", [12.5, 50])
def test_below_the_break_even_prompt_a_split_stalls_longer_and_above_it_shorter(
    gigabytes: float,
) -> None:
    pair = PdExperiment.split(BASE.with_(output_tokens=400), link_bandwidth=gigabytes * 1e9)
    length = break_even(pair)
    below, above = round(length * 0.6), round(length * 1.6)
    assert stall(pair, below, "always") > stall(pair, below, "never")
    assert stall(pair, above, "always") < stall(pair, above, "never")


def test_a_wire_slower_than_computing_has_its_break_even_far_away() -> None:
    slow = PdExperiment.split(BASE, link_bandwidth=1.25e9)
    assert wire_seconds_per_token(slow) > BASE.cost_model().linear().per_token
    assert break_even(slow) > 100_000
    linear = PdExperiment.split(BASE, cost='{"w": 0.005, "f": 2e-5, "k": 1e-9, "s": 0}')
    assert break_even(linear.with_(link_bandwidth=1.25e9)) == math.inf


def test_pieces_count_unless_gathered() -> None:
    """131,072 bytes over 50 GB/s are 2.6 us a token; 32 pieces per 16 tokens add 2 us."""
    pair = PdExperiment.split(BASE)
    assert wire_seconds_per_token(pair) == pytest.approx(131072 / 50e9 + 2e-6, rel=1e-6)
    gathered = wire_seconds_per_token(pair.with_(gather=True))
    assert 131072 / 50e9 < gathered < wire_seconds_per_token(pair)


def test_work_is_what_the_simulator_spends() -> None:
    """A closed loop of 32 streams on one decode GPU: its busy time per request is ``decode``."""
    parts = work(BASE, batch=32)
    assert parts.prefill == prefill_seconds(BASE, 2000)
    assert parts.decode == pytest.approx(299 * step_seconds(BASE, 32, 2150) / 32)
    assert parts.rate(2, 0.5) * (parts.prefill + parts.decode) == pytest.approx(1.0)


def test_a_tight_budget_keeps_the_promise_it_was_cut_for() -> None:
    gap = 0.02
    budget = tight_budget(BASE, gap)
    assert LEAST_BUDGET < budget < 8192
    for chunk, kept in ((budget, True), (4 * budget, False)):
        run = BASE.with_(rate=2.0, max_num_batched_tokens=chunk).run()
        assert (np.quantile(metric(run, "stall"), 0.9) <= gap) == kept


@pytest.mark.parametrize(
    ("total", "share", "expected"),
    [(8, 0.39, (3, 5)), (8, 0.0, (1, 7)), (8, 1.0, (7, 1)), (2, 0.9, (1, 1)), (4, 0.5, (2, 2))],
)
def test_pools_follow_the_work_and_are_never_empty(
    total: int, share: float, expected: tuple[int, int]
) -> None:
    assert pools(total, share) == expected


def test_what_is_no_pool_is_refused() -> None:
    with pytest.raises(InputError, match="1 GPUs"):
        pools(1, 0.5)
    with pytest.raises(InputError, match="batch 0"):
        break_even(PdExperiment.split(BASE), batch=0)
