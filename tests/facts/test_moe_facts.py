"""Published numbers on MoE, MLA and MTP that follow from each other: what the page cites."""

import pytest

from minilab.facts.expert_layout import ExpertLayout
from minilab.facts.fleets import DEEPSEEK_DAY6, GB200, SGLANG_96_H100, price_per_million
from minilab.facts.hardware import get_gpu
from minilab.facts.mla_cost import balance_heads, mla_time
from minilab.facts.models import get_model
from minilab.facts.speculation import emitted

V3 = get_model("deepseek-v3")


def test_mtp_yields_one_plus_acceptance():
    """DeepSeek-V3 report: 85 to 90 % accepted, 1.8 x tokens/s: a step only 3 to 6 % longer."""
    low, high = (emitted(a, 1) for a in (0.85, 0.90))
    assert (low, high) == pytest.approx((1.85, 1.90))
    assert [round(x / 1.8 - 1, 3) for x in (low, high)] == [0.028, 0.056]


def test_mla_bytes():
    """61 layers x 576 numbers x 2 bytes; 2,196 MiB at 32,768 tokens (ggml-org/llama.cpp#11446)."""
    assert V3.kv_bytes_per_token() == 61 * (512 + 64) * 2 == 70_272
    assert V3.kv_bytes(32_768, "fp16") == 2196 * 2**20


def test_mla_is_smaller_than_a_gqa_model_of_its_class():
    """Qwen2.5-72B, 327,680 bytes: 4.7 times as much, for a tenth of the parameters."""
    assert get_model("qwen2.5-72b").kv_bytes_per_token() / 70_272 == pytest.approx(4.66, abs=0.01)


def test_fp8_mla_keeps_656_bytes_a_layer():
    """FlashMLA: 512 latent bytes, 4 fp32 scales, 64 rope numbers in bf16: 40,016 bytes a token."""
    assert 512 + 4 * 4 + 64 * 2 == 656
    assert 61 * 656 == 40_016


def test_absorbed_decode_is_bound_by_compute_from_128_heads_on():
    """FlashMLA's deep dive: 865 TFLOPS, 3.35 TB/s, 2 * heads * queries FLOPs a byte."""
    assert balance_heads(865e12, 3.35e12) == pytest.approx(129, abs=0.5)
    gpu = get_gpu("h100")

    def bound(tp, queries):
        time = mla_time(V3, gpu, tp=tp, query_tokens=queries, e_mla=865 / 989)
        return time.compute / time.read

    assert bound(tp=1, queries=1) == pytest.approx(1.0, abs=0.07)  # 128 heads: at the balance
    assert bound(tp=1, queries=2) > 1.8  # a draft more: twice the FLOPs, no byte less to read
    assert bound(tp=8, queries=2) < 0.3  # 16 heads a GPU: reading binds again


def test_day_6_totals_agree_with_each_other():
    day = DEEPSEEK_DAY6
    assert day.prefill_nodes == pytest.approx(95.5, abs=0.05)
    assert day.decode_nodes == pytest.approx(131.4, abs=0.05)
    assert day.prefill_nodes + day.decode_nodes == pytest.approx(day.nodes, rel=0.001)
    assert day.cost == 87_072
    assert day.revenue == pytest.approx(562_027, rel=0.0005)
    assert day.margin == pytest.approx(5.45, abs=0.01)


def test_day_6_streams_and_their_kv():
    low, high = DEEPSEEK_DAY6.streams_per_node
    assert (round(low), round(high)) == (673, 740)
    kv = DEEPSEEK_DAY6.context * V3.kv_bytes_per_token()
    assert kv == pytest.approx(350.6e6, rel=1e-3)
    assert kv * (low + high) / 2 / 8 == pytest.approx(31e9, rel=0.02)


def test_day_6_experts_per_gpu():
    """32 redundant experts make 288: 9 a GPU in prefill (EP32), 2 in decode (EP144)."""
    found = [ExpertLayout(1, dp, True, 32).experts_per_gpu(V3) for dp in (32, 144)]
    assert found == [9, 2]


def test_sglang_and_gb200_ratios():
    per_gpu = SGLANG_96_H100["output"] / 8
    assert GB200["part I"] / per_gpu == pytest.approx(2.72, abs=0.005)
    assert GB200["part II"] / per_gpu == pytest.approx(4.80, abs=0.005)
    assert price_per_million(SGLANG_96_H100["output"]) == pytest.approx(0.20, abs=0.005)
