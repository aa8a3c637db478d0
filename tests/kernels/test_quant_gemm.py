"""quant_gemm, quant_gemm_int4, quant_pack: kernels where they can run, and what needs no kernel."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from on_device import NATIVE, random_like

from minilab.kernels import quant_gemm, quant_gemm_int4, quant_pack


def test_on_the_interpreter(run_cases):
    """The kernels, in Triton's interpreter."""
    run_cases("cases_quant_gemm.py", "interpreter")


@pytest.mark.slow
def test_sweep_on_the_interpreter(run_cases):
    """Random combinations."""
    run_cases("cases_quant_gemm.py", "interpreter", "slow")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The same cases, compiled."""
    run_cases("cases_quant_gemm.py", "gpu", "slow or not slow")


def test_rows_are_scaled_to_the_largest_code():
    """Each row uses the whole range; a row of zeros has scale 1; half a step at most is lost."""
    x = random_like((5, 64), 1) * torch.tensor([[1e-6], [1.0], [3e4], [1.0], [1.0]])
    x[3] = 0
    codes, scale = quant_pack.quantize_rows(x)
    values = codes.view(NATIVE).double()
    assert scale[3] == 1 and (values[3] == 0).all()
    assert (values.abs().amax(1) == torch.tensor([448.0, 448, 448, 0, 448])).all()
    step = torch.maximum(values.abs() / 16, torch.tensor(2.0**-10))
    assert ((values - x / scale).abs() <= step * 1.0001).all()


def test_fp8_twin_is_a_product_of_what_torch_reads():
    """torch's own FP8 type says what the codes are worth."""
    (a, scale_a), (w, scale_w) = (
        quant_pack.quantize_rows(random_like(shape, 2)) for shape in ((6, 32), (10, 32))
    )
    got = quant_gemm.scaled_mm_ref(a, w.t(), scale_a, scale_w.t(), torch.float64)
    x, y = ((c.view(NATIVE).double() * s.double()) for c, s in ((a, scale_a), (w, scale_w)))
    assert torch.allclose(got, x @ y.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("layout", "word", "zero_word"),
    [("awq", 0x75316420, 0x00000000), ("gptq", 0x76543210, 0x77777777)],
)
def test_words_of_the_layouts(layout, word, zero_word):
    """Words as AWQ's and GPTQ's files have them, written out by hand."""
    weight = torch.zeros(8, 32)
    if layout == "awq":  # outputs 0 to 7 hold 0 to 7 at input 0, and 15 to fix the scale at 1
        weight[:, 0], weight[:, 1] = torch.arange(8.0), 15
    else:  # inputs 0 to 7 hold 0 to 7, less the zero point 8; -8 and 7 fix the scale
        weight[:] = -8
        weight[:, :8], weight[:, 8] = torch.arange(8.0) - 8, 7
    packed = quant_pack.pack_int4(weight, 32, layout)
    assert (packed.scales == 1).all()
    assert packed.qweight[0, 0].item() & 0xFFFFFFFF == word
    assert packed.qzeros[0, 0].item() & 0xFFFFFFFF == zero_word
    assert torch.equal(quant_pack.unpack_int4(*packed, layout).float(), weight)


@pytest.mark.parametrize("layout", ["awq", "gptq"])
@pytest.mark.parametrize("kind", ["mixed", "positive", "negative", "zero"])
def test_packing_loses_half_a_step(kind, layout):
    """Groups on one side of zero too, where gptq cannot store the zero point 0."""
    weight = random_like((24, 256), 3).float()
    weight = {"mixed": weight, "positive": weight.abs(), "negative": -weight.abs()}.get(
        kind, torch.zeros_like(weight)
    )
    packed = quant_pack.pack_int4(weight, 64, layout)
    back = quant_pack.unpack_int4(*packed, layout)
    step = packed.scales.double().repeat_interleave(64, 0).T
    assert ((back - weight).abs() <= step * 0.5001 + 1e-12).all()
    assert kind == "zero" or float((back - weight).norm() / weight.norm()) < 0.12


def test_layouts_hold_the_same_matrix():
    """Where the zero point is not 0, only the order of the nibbles differs."""
    weight = random_like((16, 128), 4).half()
    awq, gptq = (
        quant_pack.unpack_int4(*quant_pack.pack_int4(weight, 128, layout), layout)
        for layout in quant_pack.LAYOUTS
    )
    assert torch.equal(awq, gptq)


def test_costs_by_hand():
    """FP8 halves what bf16 reads; INT4 takes 4.16 bits a weight with its scales and zero points."""
    assert quant_gemm.cost(16, 64, 32) == (16 * 32 + 64 * 32 + 2 * 16 * 64 + 320, 2 * 16 * 64 * 32)
    moved, flops = quant_gemm_int4.cost(16, 8192, 8192)
    weights = moved - 4 * 16 * 8192
    assert 8 * weights / 8192**2 == pytest.approx(4 + 20 / 128)
    assert flops == quant_gemm.cost(16, 8192, 8192)[1]


def good(kernel: Any) -> dict[str, Any]:
    """Arguments that ``kernel`` takes."""
    if kernel is quant_pack.pack_int4:
        return {"weight": torch.randn(16, 64), "group_size": 32}
    if kernel is quant_gemm_int4.w4a16_gemm:
        packed = quant_pack.pack_int4(torch.randn(16, 64), 32)
        return {"x": torch.randn(3, 64), **packed._asdict()}
    (a, scale_a), (b, scale_b) = (quant_pack.quantize_rows(torch.randn(n, 64)) for n in (3, 16))
    scales = {"scale_a": scale_a, "scale_b": scale_b.t()}
    return {"a": a, "b": b.t(), **scales, "out_dtype": torch.float16}


BYTES = torch.zeros(64, 16, dtype=torch.uint8)
BAD: dict[Any, dict[str, dict[str, Any]]] = {
    quant_gemm.scaled_mm: {
        "a is float32; it must be uint8 or float8_e4m3fn": {"a": torch.randn(3, 64)},
        "b is float8_e4m3fn; it must be uint8": {"b": BYTES.T.contiguous().t().view(NATIVE)},
        "b has shape (32, 16)": {"b": BYTES[:32]},
        "b has strides (16, 1); it must be column-major: pass weight.t()": {"b": BYTES},
        "scale_a has shape (1, 3); it must be [num_tokens, 1]": {"scale_a": torch.ones(1, 3)},
        "scale_b has shape (16, 1); it must be [1, n]": {"scale_b": torch.ones(16, 1)},
        "out_dtype is torch.int32; it must be": {"out_dtype": torch.int32},
        "out is float32 of shape (3, 16) on cpu; it must be float16": {"out": torch.zeros(3, 16)},
    },
    quant_gemm_int4.w4a16_gemm: {
        "layout is 'marlin'; it must be one of ('awq', 'gptq')": {"layout": "marlin"},
        "qweight has shape (64, 2); it must be [8, 16]": {"layout": "gptq"},
        "scales has 3 groups for 64 inputs; it must have one for every": {
            "scales": torch.ones(3, 16)
        },
        "scales has 12 outputs; it must have a multiple of 8": {"scales": torch.ones(2, 12)},
        "scales is float32; it must be float16": {"x": torch.randn(3, 64).half()},
        "qzeros has shape (1, 2)": {"qzeros": torch.zeros(1, 2, dtype=torch.int32)},
        "x has strides": {"x": torch.randn(64, 3).T},
    },
    quant_pack.pack_int4: {
        "group_size is 48; it must be one of (32, 64, 128) and divide in_features = 64": {
            "group_size": 48
        },
        "group_size is 128; it must": {"group_size": 128},
        "weight has 12 outputs; it must have a multiple of 8": {"weight": torch.randn(12, 64)},
        "layout is 'nf4'": {"layout": "nf4"},
    },
}
CASES = [
    pytest.param(kernel, change, said, id=f"{kernel.__name__}: {said}")
    for kernel, cases in BAD.items()
    for said, change in cases.items()
]


@pytest.mark.parametrize(("kernel", "change", "said"), CASES)
def test_bad_argument(kernel, change, said):
    """One changed argument, one sentence about it; without the change nothing is refused."""
    kernel(**good(kernel))
    with pytest.raises(ValueError, match=re.escape(said)):
        kernel(**{**good(kernel), **change})
