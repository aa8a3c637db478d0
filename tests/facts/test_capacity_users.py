"""The inverse question and the two-parameter fit."""

from __future__ import annotations

import math

import pytest

from minilab.facts.capacity_fit import fit_affine
from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.capacity_users import expected, plan_users
from minilab.facts.cost import StepCost
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.facts.slo_set import SLO


def llama(**more: object) -> Deployment:
    return Deployment(get_model("llama-3.1-8b"), get_gpu("h100"), **more)  # type: ignore[arg-type]


def test_memory_alone_decides_without_an_slo() -> None:
    plan = plan_users(llama(), 1000, None, 6000, 2000, (1,))
    assert plan.limit == "kv" and plan.per_instance == plan.fits_in_kv
    assert plan.gpus == math.ceil(1000 / plan.fits_in_kv)


def test_fp8_kv_doubles_users_only_where_memory_was_the_limit() -> None:
    """The claim "fp8 halves the GPUs" is false as soon as the SLO is what binds."""
    wide = {dtype: plan_users(llama(kv_dtype=dtype), 1000, None, 30_000, 2000, (1,))
            for dtype in ("bf16", "fp8")}  # fmt: skip
    assert wide["fp8"].per_instance in (
        2 * wide["bf16"].per_instance,
        2 * wide["bf16"].per_instance + 1,
    )
    slo = SLO.of({"tpot": 0.012})
    tight = {dtype: plan_users(llama(kv_dtype=dtype), 1000, slo, 1000, 1000, (1,))
             for dtype in ("bf16", "fp8")}  # fmt: skip
    assert tight["bf16"].limit == "tpot"
    assert tight["fp8"].per_instance < 1.5 * tight["bf16"].per_instance


def test_the_limit_is_the_edge() -> None:
    slo = SLO.of({"tpot": 0.015, "ttft": 1.0})
    plan = plan_users(llama(), 100, slo, 2000, 500, (1,))
    cost = StepCost(get_model("llama-3.1-8b"), get_gpu("h100"), 1, "native", "bf16")
    at, past = (expected(cost, plan.per_instance + n, 2000, 500, 8192) for n in (0, 1))
    assert at["tpot"] <= 0.015 and at["ttft"] <= 1.0
    assert past[plan.limit] > dict(slo.limits)[plan.limit]


def test_prompts_that_outrun_the_steps() -> None:
    """256 users with long prompts and short answers: no batch of decodes absorbs the prefill."""
    cost = StepCost(get_model("llama-3.1-8b"), get_gpu("h100"))
    assert expected(cost, 256, 8000, 100, 8192)["ttft"] == math.inf
    plan = plan_users(llama(kv_dtype="fp8"), 10, None, 8000, 10, (1,))
    assert plan.limit == "ttft" and plan.per_instance < plan.fits_in_kv


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"no tp serves one user.*tp=1: tpot"):
        plan_users(llama(), 10, SLO.of({"tpot": 1e-4}), 100, 100, (1,))
    with pytest.raises(InputError, match="how many GPUs"):
        plan_users(llama(pp=2), 10, None, 100, 100)
    with pytest.raises(InputError, match="whole numbers"):
        plan_users(llama(), 0, None, 100, 100)


def test_fixed_and_slope_of_a_stated_pair() -> None:
    """vllm#44376, DeepSeek-V4-Flash: 6.66 GiB for 30,000 tokens, 5.44 for 13,528."""
    line = fit_affine([(13_528, 5.44 * GIB), (30_000, 6.66 * GIB)])
    assert line.slope == pytest.approx(79_500, rel=0.001)
    assert line.fixed / GIB == pytest.approx(4.4, abs=0.05)
    assert line.tokens(6.66 * GIB) == pytest.approx(30_000, abs=1)
    with pytest.raises(InputError, match="two lengths"):
        fit_affine([(100, 1.0), (100, 2.0)])
    with pytest.raises(InputError, match="more tokens take fewer bytes"):
        fit_affine([(100, 2.0), (200, 1.0)])
