"""The trace of routes: shapes, ranges, and what the loads must add up to."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.routing_trace import (
    DOMAINS,
    NUM_EXPERTS,
    WINDOW,
    expert_loads,
    load_routes,
    loads_without_bias,
    train_loads,
)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_trace_is_whole(domain: str) -> None:
    routes = load_routes(domain)
    layers, tokens, top_k = routes.shape
    assert (layers, top_k) == (5, 4) and tokens % WINDOW == 0 and tokens > 16_000
    assert routes.max() < NUM_EXPERTS
    ordered = np.sort(routes, axis=2)
    assert (ordered[..., 1:] > ordered[..., :-1]).all(), "a token's experts are four different ones"
    groups = [len(set(row // 4)) for row in routes[0, :500]]
    assert max(groups) <= 4, "experts come from at most four of eight groups"
    assert expert_loads(routes).sum(1).tolist() == [tokens * top_k] * layers
    planned = train_loads(domain)
    assert planned.shape == (5, NUM_EXPERTS) and (planned > 0).all()
    together = [np.corrcoef(a, b)[0, 1] for a, b in zip(planned, expert_loads(routes), strict=True)]
    assert min(together) > 0.5, "a plan from training text must say something of held-out text"
    for unbiased, biased in zip(
        loads_without_bias(domain), (planned, expert_loads(routes)), strict=True
    ):
        assert unbiased.shape == biased.shape and (unbiased.sum(1) == biased.sum(1)).all()


def test_another_domain_is_named() -> None:
    for read in (load_routes, train_loads, loads_without_bias):
        with pytest.raises(InputError, match="domain 'law'; give one of code, prose"):
            read("law")


def test_it_needs_no_torch() -> None:
    script = (
        "import sys; from minilab.facts.routing_trace import load_routes; load_routes('code'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
