"""The cost model: its linear form, its mechanisms, and published measurements."""

from __future__ import annotations

import ast
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minilab.facts
from minilab.facts.cost import (
    FUSED_ALL_REDUCE,
    RANGES,
    Constants,
    Cost,
    StepCost,
    StepShape,
    WfksCost,
    cost_from_dict,
)
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu, get_link, gpus
from minilab.facts.models import get_model, models

DENSE, MOE, HYBRID, MLA, LINEAR = (
    "llama-3.1-8b",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
    "deepseek-v3",
    "qwen3.5-35b-a3b",
)


def cost_of(model: str = DENSE, gpu: str = "h100", *rest: Any, **more: Any) -> StepCost:
    return StepCost(get_model(model), get_gpu(gpu), *rest, **more)


shapes = st.builds(
    StepShape,
    st.integers(1, 16_384),
    st.integers(1, 1_024),
    st.integers(0, 10**7),
    st.integers(0, 10**9),
    st.integers(-1, 10**6),
)
costs = st.builds(
    cost_of,
    st.sampled_from(sorted(models())),
    st.sampled_from(sorted(gpus())),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from(["bf16", "fp8", "int4", "native"]),
    st.sampled_from(["bf16", "fp8"]),
)
wfks = st.builds(
    WfksCost,
    st.floats(1e-4, 1.0),
    st.floats(0, 0.05),
    st.floats(0, 1e-4),
    st.floats(0, 0.1),
    st.floats(0, 1e-4),
    st.floats(0, 30),
)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.one_of(costs, wfks), shapes)
def test_linear_form_is_the_cost(cost: Cost, shape: StepShape) -> None:
    """The simulator runs the coefficients, people read the terms; they may not drift apart."""
    linear = cost.linear()
    window = shape.context if shape.window_context < 0 else shape.window_context
    by_hand = (
        linear.per_step(shape.num_tokens)
        + linear.per_seq * shape.num_seqs
        + linear.per_context * shape.context
        + linear.per_window_context * window
        + linear.per_pair * shape.pairs
    )
    assert by_hand == pytest.approx(cost.seconds(shape), rel=1e-12, abs=0)
    assert linear.seconds(shape) == pytest.approx(cost.seconds(shape), rel=1e-12, abs=0)
    assert cost.seconds(shape) == sum(cost.terms(shape).values()) > 0
    assert linear.request_overhead == cost.request_overhead


@pytest.mark.parametrize("name", [DENSE, MOE, HYBRID, MLA, LINEAR])
@pytest.mark.parametrize("tp", [1, 2])
def test_linear_form_of_each_kind_of_model(name: str, tp: int) -> None:
    """Random models rarely have windows; each kind once, every field of the shape at work."""
    cost = cost_of(name, "h200", tp, "native", "fp8")
    shape = StepShape(700, 60, 90_000, 200_000, 7_000)
    assert cost.linear().seconds(shape) == pytest.approx(cost.seconds(shape), rel=1e-12, abs=0)


@settings(deadline=None)
@given(costs, shapes, st.integers(0, 10**5), st.integers(0, 4096))
def test_more_work_never_costs_less(
    cost: StepCost, shape: StepShape, context: int, tokens: int
) -> None:
    before = cost.seconds(shape)
    assert cost.seconds(shape._replace(context=shape.context + context)) >= before
    assert cost.seconds(shape._replace(pairs=shape.pairs + context)) >= before
    assert cost.seconds(shape._replace(num_seqs=shape.num_seqs + 1)) > before
    more = cost.seconds(shape._replace(num_tokens=shape.num_tokens + tokens))
    assert more >= before * (1 - 1e-12)


# Published measurements ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "gpu", "kv_dtype", "slope"),
    [
        (DENSE, "h100", "bf16", 4.37e-5),
        (DENSE, "h100", "fp8", 2.37e-5),
        (DENSE, "b200", "bf16", 1.80e-5),
        (DENSE, "b200", "fp8", 9.72e-6),
        (HYBRID, "h100", "bf16", 8.94e-6),
    ],
)
def test_decode_slope_is_the_measured_one(
    model: str, gpu: str, kv_dtype: str, slope: float
) -> None:
    """vLLM blog 2026-04-22: ITL = slope * context + b, in ms per token; roofline within 25 %."""
    cost = cost_of(model, gpu, weight_dtype="native", kv_dtype=kv_dtype)
    at = [cost.seconds(StepShape(1, 1, t, 0, 128)) for t in (10_000, 110_000)]
    assert (at[1] - at[0]) / 100_000 * 1e3 == pytest.approx(slope, rel=0.25)


@pytest.mark.parametrize(("gpu", "milliseconds"), [("h100", 6.44), ("b200", 3.93)])
def test_decode_step_at_no_context(gpu: str, milliseconds: float) -> None:
    """The intercepts b of the same fits: weights and launches, one sequence."""
    seconds = cost_of(DENSE, gpu).seconds(StepShape(1, 1, 0, 0))
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=0.25)


def test_a_machine_the_prior_was_not_made_for() -> None:
    """Fit of LLMServingSim's two RTX PRO 6000, Qwen3-32B: 27 ms a step, .168 ms a token."""
    linear = cost_of("qwen3-32b", "rtx-pro-6000", 2).linear()
    assert linear.fixed * 1e3 == pytest.approx(27, rel=0.15)
    assert linear.per_token * 1e3 == pytest.approx(0.168, rel=0.15)


# Mechanisms ---------------------------------------------------------------------------------------


def test_experts_touched_are_neither_all_nor_only_top_k() -> None:
    """Reading all of them doubles the TPOT error, reading top-k's share raises it by half."""
    model = get_model(MOE)
    cost = cost_of(MOE, weight_dtype="bf16")
    every = model.routed_params * 2 / (3.35e12 * cost.constants.e_mem)

    def read(tokens: int) -> float:
        return cost.terms(StepShape(tokens, tokens, 0, 0))["expert_weights"]

    assert read(1) == pytest.approx(every * 8 / 128)
    assert read(16) == pytest.approx(every * (1 - (1 - 8 / 128) ** 16))
    assert 0.55 * every < read(16) < 0.75 * every  # top-k's share is 1/16, sixteen times it is 1
    assert read(4096) == pytest.approx(every)


def test_dense_models_have_no_expert_terms() -> None:
    assert set(cost_of().terms(StepShape(1, 1, 0, 0))) == {
        "layers",
        "weights",
        "gemm",
        "kv_read",
        "prefill_attention",
        "sequences",
    }


def test_tensor_parallelism_divides_the_weights_and_brings_all_reduces() -> None:
    shape = StepShape(100, 100, 50_000, 0)
    one, four = cost_of().terms(shape), cost_of(DENSE, "h100", 4).terms(shape)
    assert four["weights"] == pytest.approx(one["weights"] / 4)
    assert four["gemm"] == pytest.approx(one["gemm"] / 4)
    assert four["kv_read"] == pytest.approx(one["kv_read"] / 4)
    assert "all_reduce" not in one and "link" not in one
    assert four["all_reduce"] == pytest.approx(2 * 32 * 20e-6)
    assert four["link"] == pytest.approx(100 * 2 * 32 * 2 * 4096 / (450e9 * 0.15))
    assert four["layers"] == one["layers"] and four["sequences"] == one["sequences"]


def test_a_latent_is_read_whole_by_every_rank() -> None:
    shape = StepShape(8, 8, 80_000, 0)
    alone, split = (cost_of(MLA, "h200", tp).terms(shape)["kv_read"] for tp in (8, 16))
    assert alone == split


def test_all_reduces_can_be_fused_and_go_over_another_wire() -> None:
    gpu = get_gpu("h100")
    fused = Constants.for_gpu(gpu, fused_all_reduce=True)
    shape = StepShape(64, 64, 0, 0)
    assert fused.t_ar == FUSED_ALL_REDUCE < Constants.for_gpu(gpu).t_ar
    fast = cost_of(DENSE, "h100", 2, constants=fused).terms(shape)
    assert fast["all_reduce"] == pytest.approx(2 * 32 * FUSED_ALL_REDUCE)
    slow = cost_of(DENSE, "h100", 2, link="pcie-5").terms(shape)
    assert slow["link"] == pytest.approx(fast["link"] * 450 / 64)
    assert cost_of(link=get_link("ethernet-10")).link.name == "ethernet-10"


def test_windowed_layers_read_the_window() -> None:
    """gpt-oss at 128k: half the layers read 128 tokens; charging all of them doubles the slope."""
    cost = cost_of(HYBRID)
    long = StepShape(1, 1, 100_000, 0, 128)
    terms = cost.terms(long)
    assert terms["window_kv_read"] == pytest.approx(terms["kv_read"] * 128 / 100_000)
    assert cost.linear().window == 128 and cost_of().linear().window == 0
    assert cost_of().linear().per_window_context == 0
    uncut = cost.terms(long._replace(window_context=-1))
    assert uncut["window_kv_read"] == pytest.approx(uncut["kv_read"])


def test_linear_attention_costs_per_sequence_not_per_token() -> None:
    cost = cost_of(LINEAR)
    state = 2 * get_model(LINEAR).state_bytes() / (3.35e12 * cost.constants.e_mem)
    assert cost.terms(StepShape(1, 5, 10**6, 0))["state"] == pytest.approx(5 * state)
    assert cost.linear().per_seq == pytest.approx(cost.constants.t_seq + state)


def test_narrow_weights_are_read_faster_and_computed_as_the_card_can() -> None:
    shape = StepShape(1000, 1, 0, 0)
    bf16, fp8, int4 = (cost_of(weight_dtype=d).terms(shape) for d in ("bf16", "fp8", "int4"))
    assert 0.5 < fp8["weights"] / bf16["weights"] < 0.6  # the head stays bf16
    assert fp8["gemm"] == pytest.approx(bf16["gemm"] / 2)
    assert int4["weights"] < fp8["weights"] and int4["gemm"] == bf16["gemm"]
    ampere = cost_of(DENSE, "a100-80g", weight_dtype="fp8").terms(shape)
    assert ampere["gemm"] == cost_of(DENSE, "a100-80g").terms(shape)["gemm"]


def test_explain_prints_the_whole_sum() -> None:
    cost = cost_of(HYBRID, "h100", 2, "native")
    shape = StepShape(40, 33, 64_000, 1000, 4096)
    text = cost.explain(shape)
    for name, seconds in cost.terms(shape).items():
        assert any(
            line.startswith(name) and f"{seconds * 1e3:.4f} ms" in line
            for line in text.splitlines()
        )
    assert f"{cost.seconds(shape) * 1e3:.4f} ms 100.0%" in text
    launches = f"48 x {cost.constants.t_layer * 1e6:g} us"
    assert launches in text and "constants: fitted on" in text.splitlines()[0]
    assert "3 x 2000 us" in WfksCost(0.01, 1e-4, 1e-7, 2e-3).explain(StepShape(1, 3, 5, 0))


# Constants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(gpus()))
def test_default_constants_say_whether_they_were_fitted(name: str) -> None:
    gpu = get_gpu(name)
    constants = Constants.for_gpu(gpu).checked(name)
    fitted = name in {"h20", "h100", "h200", "b200", "b300", "gb200", "rtx-4090", "rtx-pro-6000"}
    assert constants.provenance.startswith("fitted on ") == fitted
    assert fitted or constants.provenance == "prior, not fitted"
    assert (constants.e_link == 0.25) == gpu.links[0].startswith("pcie")


def test_constants_are_checked() -> None:
    constants = Constants.for_gpu(get_gpu("h100"))
    assert set(RANGES) == set(constants.to_dict()) - {"provenance"}
    changed = constants.with_values({"e_mem": 0.5}, "mine.json")
    assert changed.e_mem == 0.5 and changed.e_comp == constants.e_comp
    assert changed.provenance.startswith("e_mem from mine.json; else fitted on")
    for values, says in [
        ({"e_mem": 95}, "e_mem is 95; expected 0.02 to 1.2"),
        ({"t_layer": 40.6}, "t_layer is 40.6; .*did you mean milli- or microseconds"),
        ({"t_seq": float("nan")}, "t_seq is nan"),
        ({"t_ar": -1e-6}, "t_ar is -1e-06"),
        ({"e_com": 0.5}, "unknown constant 'e_com'; did you mean e_comp"),
        ({"e_mem": "0.9"}, "e_mem is '0.9'"),
    ]:
        with pytest.raises(InputError, match=says) as caught:
            constants.with_values(values, "mine.json")
        assert str(caught.value).startswith("mine.json: ") and "\n" not in str(caught.value)


def test_costs_are_values_for_sweeps() -> None:
    cost = cost_of(MOE, "b200", 2, "fp8", "fp8")
    copy = pickle.loads(pickle.dumps(cost))
    assert copy.linear() == cost.linear()
    for made in (cost, WfksCost(0.01, 1e-4, 1e-7, 2e-5)):
        again = cost_from_dict(json.loads(json.dumps(made.to_dict())))
        assert again.linear() == made.linear()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tp": 0}, "tp is 0"),
        ({"weight_dtype": "fp7"}, "unknown dtype 'fp7'; did you mean"),
        ({"kv_dtype": "fp4"}, "unknown KV dtype 'fp4'"),
        ({"link": "nvlink"}, "unknown link 'nvlink'; did you mean nvlink"),
    ],
)
def test_step_cost_refuses(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        cost_of(**change)


def test_facts_of_size_and_cost_need_no_numpy() -> None:
    """The static page generates its tables from them, and a base install has no torch."""
    folder = Path(minilab.facts.__file__).parent
    names = "hardware models model_spec model_config geometry kv_layout capacity cost step_cost"
    names += " cost_terms cost_constants cost_wfks cost_transfer user_input errors"
    for name in names.split():
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                top = module.split(".")[0]
                assert top in sys.stdlib_module_names or module.startswith("minilab.facts."), name


def test_a_slower_card_is_slower() -> None:
    """A field read from the wrong place (sm for bandwidth, bytes for bits) shows here."""
    shape = StepShape(64, 64, 64_000, 0)
    base = get_gpu("h100")
    halved = replace(base, mem_bw=base.mem_bw / 2)
    fast, slow = (StepCost(get_model(DENSE), gpu).terms(shape) for gpu in (base, halved))
    assert slow["weights"] == pytest.approx(2 * fast["weights"])
    assert slow["kv_read"] == pytest.approx(2 * fast["kv_read"])
    assert slow["gemm"] == fast["gemm"]
