"""Hardware FP8 where there is none: refused in our own sentence, never run as something else.

The tensors are torch's fake ones: they are on a GPU, and hold nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from minilab.kernels import device
from minilab.kernels.device import check_native_fp8
from minilab.kernels.kv_write import kv_write
from minilab.kernels.mla_decode import mla_decode
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill
from minilab.kernels.quant_gemm import scaled_mm

NATIVE = torch.float8_e4m3fn
KERNELS: dict[str, Any] = {
    "key_cache of paged_decode": paged_decode,
    "key_cache of paged_prefill": paged_prefill,
    "key_cache of kv_write": kv_write,
    "kv_cache of mla_decode": mla_decode,
    "a of scaled_mm": scaled_mm,
}


@pytest.fixture
def gpu(monkeypatch):
    """A process that sees a GPU of the capability asked for, with triton or without."""

    def pretend(capability: int, triton: bool = True) -> None:
        monkeypatch.setattr(device, "HAS_TRITON", triton)
        monkeypatch.setattr(device, "INTERPRETED", False)
        monkeypatch.setattr(device, "MIXED", False)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: divmod(capability, 10))

    return pretend


def arguments(kernel: Any) -> dict[str, Any]:
    """What ``kernel`` takes, on a GPU, FP8 as hardware reads it. Inside a FakeTensorMode."""

    def on_gpu(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    def ints(*shape: int) -> torch.Tensor:
        return on_gpu(*shape, dtype=torch.int32)

    pages = {"block_tables": ints(2, 2), "seq_lens": ints(2)}
    caches = {name: on_gpu(6, 4, 2, 16, dtype=NATIVE) for name in ("key_cache", "value_cache")}
    if kernel is paged_decode:
        return {"query": on_gpu(2, 4, 16), **caches, **pages}
    if kernel is paged_prefill:
        starts = {"cu_seqlens_q": ints(3), "max_seqlen_q": 3}
        return {"query": on_gpu(5, 4, 16), **caches, **pages, **starts}
    if kernel is kv_write:
        new = {"key": on_gpu(3, 2, 16), "value": on_gpu(3, 2, 16)}
        return {**new, **caches, "slot_mapping": on_gpu(3, dtype=torch.int64)}
    if kernel is mla_decode:
        cache = on_gpu(6, 4, 96, dtype=NATIVE)
        options = {"scale": 0.2, "kv_lora_rank": 64}
        return {"query": on_gpu(2, 4, 96), "kv_cache": cache, **pages, **options}
    a, b = on_gpu(3, 64, dtype=NATIVE), on_gpu(16, 64, dtype=NATIVE).t()
    scale_a, scale_b = (on_gpu(*shape, dtype=torch.float32) for shape in ((3, 1), (1, 16)))
    return {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "out_dtype": torch.float16}


@pytest.mark.parametrize("backend", ["auto", "triton"])
@pytest.mark.parametrize("capability", [75, 80, 86])
@pytest.mark.parametrize("name", KERNELS)
def test_refused_without_its_hardware(gpu, recwarn, name, capability, backend):
    """Also where "auto" would fall back (prefill and products on a T4): no warning, no reference.
    The way out names the argument, and is none that would be refused as well."""
    gpu(capability)
    argument = name.split()[0]
    said = (
        rf"^{argument} is float8_e4m3fn; compute capability {capability // 10}\.{capability % 10}"
    )
    said += rf" has no FP8.*\(8\.9 is the first\): pass {argument}\.view\(torch\.uint8\)"
    with FakeTensorMode(), pytest.raises(ValueError, match=said):
        KERNELS[name](**arguments(KERNELS[name]), backend=backend)
    assert not recwarn.list


def test_the_capability_decides_not_the_package(gpu):
    """Without triton nothing else is asked for, so nothing else is answered."""
    gpu(80, triton=False)
    with FakeTensorMode(), pytest.raises(ValueError, match=r"^key_cache is float8_e4m3fn"):
        paged_decode(**arguments(paged_decode))


def test_reference_reads_the_bits_anywhere(gpu):
    """Asked for by name, it is not refused: it needs no hardware. (On the CPU it is what runs.)"""
    gpu(75)
    with FakeTensorMode():
        check_native_fp8("a", torch.empty(3, dtype=NATIVE, device="cuda"), "reference")
    codes = torch.full((3, 64), 0x38, dtype=torch.uint8).view(NATIVE)  # 1.0
    ones = torch.ones(3, 1)
    out = scaled_mm(codes, codes.t(), ones, ones.t(), torch.float16, backend="reference")
    assert (out == 64).all()


@pytest.mark.parametrize("capability", [89, 90, 100, 120])
def test_allowed_where_the_hardware_is(gpu, capability):
    """A guard that refuses everything would pass the tests above."""
    gpu(capability)
    with FakeTensorMode():
        check_native_fp8("a", torch.empty(3, dtype=NATIVE, device="cuda"), "auto")


def test_other_types_pass_anywhere(gpu):
    """The portable codes are uint8, and a CPU runs no hardware FP8 at all."""
    gpu(75)
    with FakeTensorMode():
        check_native_fp8("a", torch.empty(3, dtype=torch.uint8, device="cuda"), "triton")
    check_native_fp8("a", torch.zeros(3).to(NATIVE), "auto")
