"""The selector's formulas are those of facts: no second truth about what a step costs."""

from __future__ import annotations

import random

import pytest

from minilab.facts.capacity import default_kv_blocks
from minilab.facts.cost import StepCost
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu, gpus
from minilab.facts.models import get_model
from minilab.judge.selector.room import kv_tokens
from minilab.judge.selector.step import Step
from minilab.judge.selector.tables import tables

COEFFICIENTS = {
    "fixed": "fixed",
    "per_token": "per_token",
    "per_seq": "per_seq",
    "per_context": "per_context",
    "per_pair": "per_pair",
    "per_window": "per_window_context",
    "window": "window",
    "expert_read": "expert_read",
    "expert_share": "expert_share",
    "overhead": "request_overhead",
}


def random_cases(count):
    rng = random.Random(11)
    names, cards = sorted(tables()["models"]), sorted(gpus())
    return [
        (
            rng.choice(names),
            rng.choice(cards),
            rng.choice([1, 2, 4, 8]),
            rng.choice(["native", "bf16", "fp8", "int4"]),
            rng.choice(["bf16", "fp8"]),
        )
        for _ in range(count)
    ]


def test_steps_cost_what_facts_say():
    """Every coefficient, over 400 deployments, to 1e-12."""
    for model, gpu, tp, weights, kv in random_cases(400):
        ours = Step(tables(), model, gpu, tp, weights, kv)
        theirs = StepCost(get_model(model), get_gpu(gpu), tp, weights, kv).linear()
        for name, other in COEFFICIENTS.items():
            expected = getattr(theirs, other)
            assert getattr(ours, name) == pytest.approx(expected, rel=1e-12, abs=1e-18), (
                model, gpu, tp, weights, kv, name,
            )  # fmt: skip


def test_kv_pools_hold_what_facts_say():
    """Models with windowed or linear layers are charged for every layer in both."""
    seen = 0
    for model, gpu, tp, weights, kv in random_cases(300):
        spec = get_model(model)
        try:
            blocks = default_kv_blocks(get_gpu(gpu), spec, tp, weights, kv)
        except InputError:
            blocks = 0
        ours = kv_tokens(tables(), model, gpu, tp, weights, kv)
        assert ours == blocks * 16, (model, gpu, tp, weights, kv)
        seen += blocks > 0
    assert seen > 60


def test_a_wrong_constant_would_be_seen():
    """The comparison above can fail."""
    changed = {**tables(), "gpus": {k: dict(v) for k, v in tables()["gpus"].items()}}
    changed["gpus"]["h100"]["mem_bw"] *= 1 + 1e-7
    ours = Step(changed, "llama-3.1-8b", "h100", 1, "native", "bf16")
    theirs = StepCost(get_model("llama-3.1-8b"), get_gpu("h100"), 1, "native").linear()
    assert ours.fixed != pytest.approx(theirs.fixed, rel=1e-12)
