"""Two tenants, equal prompts: can the second tell from its TTFT that the first was there?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minilab.facts.workload import Workload, synthetic
from minilab.sim.experiment import Experiment


def p_value(one: Any, two: Any, seed: int = 0, draws: int = 2000) -> float:
    """Permutation test on the difference of mean TTFT: how often chance alone does as well."""
    rng = np.random.default_rng(seed)
    both, n = np.concatenate([one, two]), len(one)
    seen = abs(one.mean() - two.mean())
    hits = 0
    for _ in range(draws):
        rng.shuffle(both)
        hits += abs(both[:n].mean() - both[n:].mean()) >= seen - 1e-12
    return (hits + 1) / (draws + 1)


def two_tenants(salted: bool, seed: int) -> Workload:
    """Victim and spy by turns; the spy asks what the victim asked a while ago."""
    base = synthetic(1.0, 400, 2000, 4, seed=seed).requests
    rows = []
    for k, request in enumerate(base):
        tenant = ("victim", "spy")[k % 2]
        text = (((k - 20 * (k % 2)) // 2 + 1000, 2000),)
        salt = tenant if salted else None
        rows.append(request._replace(prompt=text, tenant=tenant, cache_salt=salt))
    return Workload(rows)


def first_tokens(salted: bool, seed: int = 1) -> tuple[Any, Any]:
    log = Experiment().run(two_tenants(salted, seed))
    ttft = log.requests["first_token"] - log.requests["arrival"]
    spy = log.requests["tenant"] == "spy"
    late = np.arange(len(log)) >= 40  # before that there is nothing to find
    return ttft[spy & late], ttft[~spy & late]


def test_without_a_salt_the_spy_can_tell() -> None:
    spy, victim = first_tokens(salted=False)
    assert spy.mean() < 0.7 * victim.mean()
    assert p_value(spy, victim) < 0.001


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_a_salt_nobody_can(seed: int) -> None:
    spy, victim = first_tokens(True, seed)
    assert p_value(spy, victim) > 0.05


def test_the_salt_has_a_price() -> None:
    """What two tenants share is computed and kept twice."""
    logs = [Experiment().run(two_tenants(salted, 1)) for salted in (False, True)]
    open_hits, salted_hits = (log.requests["cached_tokens"].sum() for log in logs)
    assert open_hits > 0 and salted_hits == 0
