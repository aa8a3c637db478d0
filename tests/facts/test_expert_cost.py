"""ExpertCost: equal to StepCost where nothing new happens, and right in sign where it does."""

from itertools import product

import pytest

from minilab.facts.all_to_all import AllToAll, Fabric
from minilab.facts.cost_terms import StepShape
from minilab.facts.errors import InputError
from minilab.facts.expert_cost import ExpertCost
from minilab.facts.expert_layout import ExpertLayout
from minilab.facts.expert_load import parse_load
from minilab.facts.expert_work import ExpertWork
from minilab.facts.fleets import DEEPSEEK_DAY6
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.facts.step_cost import StepCost

V3, H200, H100 = get_model("deepseek-v3"), get_gpu("h200"), get_gpu("h100")


def make(tp=1, dp=8, ep=True, *, gpu=H200, skew=None, model=V3, redundant=0, slots=None, **more):
    layout = ExpertLayout(tp, dp, ep, redundant)
    wires = AllToAll(layout.gpus, model.hidden, model.top_k, Fabric.of(gpu))
    load = parse_load(skew, model.experts, model.top_k) if skew else None
    work = ExpertWork(model, gpu, layout, exchange=wires, load=load, slots=slots)
    return ExpertCost(StepCost(model, gpu, tp, "native"), work, **more)


def decode(batch, context=2000):
    return StepShape(batch, batch, batch * context, 0)


def test_slices_of_experts_cost_what_step_cost_says():
    """tp=8 without EP is the calibrated model: nothing may be counted twice or left out."""
    for shape in (decode(1), decode(64), StepShape(3000, 9, 900, 40_000)):
        assert make(8, 1, False).seconds(shape) == pytest.approx(
            StepCost(V3, H200, 8, "native").seconds(shape), rel=1e-12
        )


def test_linear_form_equals_the_terms():
    layouts = [(1, 8, True), (8, 1, True), (8, 1, False), (4, 4, True)]
    for layout, queries in product(layouts, (1, 2)):
        cost = make(*layout, skew="lognormal:0.6", query_tokens=queries)
        for shape in (decode(1), decode(100), StepShape(900, 4, 300, 70_000)):
            assert cost.linear().seconds(shape) == pytest.approx(cost.seconds(shape), rel=1e-12)


def test_exchange_loses_on_few_tokens_and_wins_on_many():
    """Same GPUs, same sequences: cheap all-reduces at first, one copy of the KV against 8 later."""

    def gain(batch):
        return make(8, 1, False).seconds(decode(batch)) / make(1, 8).seconds(decode(batch // 8))

    assert gain(8) < 0.9 < 1.2 < gain(512)


def test_whole_experts_on_sliced_attention_only_add_imbalance():
    """tp=8 with EP: the same all-reduces, no all-to-all; the fullest GPU decides."""
    sliced, whole = make(8, 1, False), make(8, 1, True, skew="uniform")
    assert "dispatch" not in whole.terms(decode(64))
    assert whole.terms(decode(64))["all_reduce"] == sliced.terms(decode(64))["all_reduce"]
    assert whole.seconds(decode(16)) > sliced.seconds(decode(16))


def test_exchange_replaces_the_second_all_reduce_of_a_moe_layer():
    with_wires = make(4, 2).terms(decode(64))["all_reduce"]
    assert with_wires == pytest.approx((2 * 61 - 58) / (2 * 61) * 122 * 20e-6)


def test_hot_experts_cost_time_and_a_placement_gives_it_back():
    from minilab.core.expert_balance import balance_layers

    shape = decode(512)
    table = parse_load("lognormal:1.0", 256, 8).table.tolist()
    slots = [plan.slots for plan in balance_layers(table, 288, 32)]
    even, hot = make(dp=32), make(dp=32, skew="lognormal:1.0")
    placed = make(dp=32, skew="lognormal:1.0", redundant=32, slots=slots)
    gemm = [cost.terms(shape)["expert_gemm"] for cost in (even, placed, hot)]
    assert gemm[0] < gemm[1] < 1.1 * gemm[0] and gemm[2] > 1.7 * gemm[0]


def test_overlap_pays_on_large_batches_only():
    """Two halves read the weights twice; that must be less than what the wire took."""

    def ratio(batch):
        return make(dp=64, overlap=True).seconds(decode(batch)) / make(dp=64).seconds(decode(batch))

    assert ratio(1) > 1.2 and ratio(128) < 0.9


def test_a_draft_doubles_what_mla_computes_but_not_what_it_reads():
    plain, drafting = (make(query_tokens=q).terms(decode(64, 16_000)) for q in (1, 2))
    assert drafting["kv_read"] == plain["kv_read"]
    attention = [t["kv_read"] + t["mla_compute"] for t in (plain, drafting)]
    assert attention[1] == pytest.approx(2 * attention[0], rel=1e-9)
    assert "mla_compute" not in make(8, 1).terms(decode(64))  # 16 heads a GPU: reading binds


def test_day_6_decode_unit_on_paper():
    """EP144, two-batch overlap, nothing fitted on it: 14.8k tokens/s a node, 20 to 22 a stream."""
    day = DEEPSEEK_DAY6
    batch = round(sum(day.streams_per_node) / 16)
    cost = make(dp=144, redundant=32, gpu=H100, overlap=True)
    step = cost.seconds(decode(batch, day.context))
    assert 8 * batch / step == pytest.approx(day.decode_rate, rel=0.15)
    assert 1 / step == pytest.approx(21, rel=0.15)


def test_explain_names_terms_and_layout():
    text = make(skew="uniform", overlap=True).explain(decode(64))
    for word in ("tp=1 dp=8, experts by EP", "dispatch", "x mean", "overlap", "touched"):
        assert word in text


def test_weights_on_a_gpu():
    """Attention is copied per rank, experts are not: 101 GB a GPU on 8, half of it on 32."""
    one, four = (ExpertLayout(1, dp).weight_bytes(V3) for dp in (8, 32))
    routed = V3.routed_params
    assert one - four == pytest.approx(routed / 8 - routed / 32)
    assert 95e9 < one < 105e9


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: make(8, 2, False), "without expert parallelism"),
        (lambda: make(0, 1), "tp is 0"),
        (lambda: make(1, 7), "do not divide"),
        (lambda: make(1, 8, redundant=-1), "redundant"),
        (lambda: make(8, 1, False, redundant=8), "need expert parallelism"),
        (lambda: make(8, 1, overlap=True), "has none"),
        (lambda: make(1, 8, redundant=8, skew="uniform"), "placement"),
        (lambda: make(1, 8, model=get_model("llama-3.1-8b")), "no experts"),
        (lambda: ExpertWork(V3, H200, ExpertLayout(1, 8)), "AllToAll"),
        (lambda: ExpertCost(StepCost(V3, H200, 2, "native"), make(1, 8).work), "different"),
    ],
)
def test_layouts_that_cannot_be_are_refused(build, word):
    with pytest.raises(InputError, match=word):
        build()
