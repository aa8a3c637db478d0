"""Dispatch and combine against DeepEP's published tables, and where the regimes differ."""

import pytest

from minilab.facts.all_to_all import AllToAll, Fabric, combine_bytes, dispatch_bytes
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu

H100 = get_gpu("h100")
# deepseek-ai/DeepEP, docs/legacy.md: EP, us and GB/s of dispatch, of combine; 128 tokens per rank.
LOW_LATENCY = [
    (8, 77, 98, 114, 127),
    (16, 118, 63, 195, 74),
    (32, 155, 48, 273, 53),
    (64, 173, 43, 314, 46),
    (128, 192, 39, 369, 39),
    (256, 194, 39, 360, 40),
]


def wires(gpus=64, **changes):
    fabric = changes.pop("fabric", Fabric.of(H100))
    return AllToAll(gpus, 7168, 8, fabric, **changes)


@pytest.mark.parametrize("row", LOW_LATENCY)
def test_published_bandwidths_follow_from_bytes_and_latencies(row):
    """All 12: bytes = tokens * 8 * (7168 + 7168/128*4), or * 2 * 7168; within 2.5 %."""
    _, send_us, send_gbs, back_us, back_gbs = row
    send, back = 128 * dispatch_bytes(7168, 8), 128 * combine_bytes(7168, 8)
    assert (send, back) == (7_569_408, 14_680_064)
    assert send / send_us / 1e3 == pytest.approx(send_gbs, rel=0.025)
    assert back / back_us / 1e3 == pytest.approx(back_gbs, rel=0.025)


@pytest.mark.parametrize("row", LOW_LATENCY)
def test_three_constants_give_all_twelve_latencies(row):
    """The model was fitted on these: a wrong share of remote bytes would miss by tens of %."""
    gpus, send_us, _, back_us, _ = row
    send, back = wires(gpus, kernels="low-latency").parts(128)
    assert send * 1e6 == pytest.approx(send_us, rel=0.06)
    assert back * 1e6 == pytest.approx(back_us, rel=0.06)


def test_bytes_per_token():
    """173,824 bytes a layer; 10.1 MB over the 58 MoE layers of DeepSeek-V3."""
    assert wires().token_bytes == 173_824
    assert 58 * wires().token_bytes == pytest.approx(10.1e6, rel=0.005)
    assert wires(dtype="bf16").token_bytes == 8 * 4 * 7168


def test_communication_alone_sets_a_floor_on_tpot():
    """EP256 without overlap: 58 x (194 + 360) us = 32 ms a step."""
    assert pytest.approx(0.032, abs=0.0005) == 58 * (194 + 360) * 1e-6
    floor = 58 * wires(256, kernels="low-latency").seconds(128)
    assert floor == pytest.approx(0.032, rel=0.06)


def test_fp8_dispatch_saves_nothing_where_the_start_dominates():
    one, many = (
        [wires(kernels="low-latency", dtype=d).seconds(n) for d in ("fp8", "bf16")]
        for n in (1, 256)
    )
    assert one[1] / one[0] < 1.05 < 1.2 < many[1] / many[0]


def test_each_kernel_has_its_batch():
    """Normal kernels send fewer copies but start later: they win on large batches only."""
    few, many = (
        [wires(kernels=k).seconds(n) for k in ("low-latency", "normal")] for n in (32, 8192)
    )
    assert few[0] < few[1] and many[1] < many[0]
    assert wires().kind(256) == "low-latency" and wires().kind(257) == "normal"


def test_limiting_a_tokens_machines_spares_the_wire():
    free, limited = (wires(256, kernels="normal", groups=g).seconds(4096) for g in (0, 4))
    assert limited < free


def test_congestion_hurts_between_machines_only():
    slow = Fabric.of(H100).congested(0.5)
    assert wires(8, fabric=slow).seconds(128) == wires(8).seconds(128)
    calm, jammed = (wires(64, fabric=f).seconds(128) for f in (Fabric.of(H100), slow))
    assert 1.5 < jammed / calm < 2


def test_one_rank_and_no_token_send_nothing():
    assert wires(1).seconds(100) == 0 == wires(64).seconds(0)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: wires(dtype="fp4"), "fp8 or bf16"),
        (lambda: wires(kernels="fast"), "low-latency"),
        (lambda: Fabric.of(H100).congested(0), "above 0"),
        (lambda: Fabric.of(H100, gpus_per_node=0), "gpus_per_node"),
        (lambda: Fabric.of(H100, "string"), "link"),
    ],
)
def test_what_does_not_exist_is_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()
