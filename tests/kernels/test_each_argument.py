"""Every tensor that a kernel takes, spoiled in every way that can be seen: ValueError by its name.

The chosen cases of the other files say what the sentences are; this walk finds the argument that
somebody forgot to check.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from minilab.kernels import mla_decode, moe, moe_align, moe_router, quant_gemm, quant_gemm_int4
from minilab.kernels.block_copy import gather_blocks, scatter_blocks
from minilab.kernels.kv_write import kv_write
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill
from minilab.kernels.rejection import rejection

FILES = {
    "test_arguments": (
        paged_decode, paged_prefill, kv_write, gather_blocks, scatter_blocks, rejection,
    ),
    "test_moe": (moe_router.moe_router, moe_align.moe_align_block_size, moe.fused_experts),
    "test_quant_gemm": (quant_gemm.scaled_mm, quant_gemm_int4.w4a16_gemm),
    "test_mla_decode": (mla_decode.mla_decode,),
}  # fmt: skip


def good(file: str, kernel: Any) -> dict[str, Any]:
    """Arguments that ``kernel`` takes."""
    given = importlib.import_module(file).good
    arguments: dict[str, Any] = given() if file == "test_mla_decode" else given(kernel)
    return arguments


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, no two of them side by side."""
    wide = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


SPOILT = {
    "another type": lambda x: x.to(torch.complex64),
    "one dimension more": lambda x: x[None],
    "another device": lambda x: x.to("meta"),
    "numbers apart": apart,
    "a list": lambda x: x.tolist(),
}
# What is allowed: a copy takes any type of any shape, and a kernel of one tensor runs where it is.
ALLOWED = {
    ("gather_blocks", "cache", "another type"),
    ("gather_blocks", "cache", "one dimension more"),
    ("moe_router", "router_logits", "another device"),
    ("moe_align_block_size", "topk_ids", "another device"),
}
CASES = [
    pytest.param(file, kernel, name, how, id=f"{kernel.__name__}, {name}: {how}")
    for file, kernels in FILES.items()
    for kernel in kernels
    for name, value in good(file, kernel).items()
    if isinstance(value, torch.Tensor)
    for how in SPOILT
    if (kernel.__name__, name, how) not in ALLOWED
]


@pytest.mark.parametrize(("file", "kernel", "name", "how"), CASES)
def test_spoilt_argument_is_named(file, kernel, name, how):
    """One line that begins with an argument: the spoilt one, or the one that no longer agrees."""
    arguments = good(file, kernel)
    with pytest.raises(ValueError) as caught:
        kernel(**{**arguments, name: SPOILT[how](arguments[name])})
    said = str(caught.value)
    first = said.split()[0].split("[")[0]
    assert first in arguments and "\n" not in said
    assert first == name or how == "another device" or "dimension" in how or "type" in how, said


def test_the_walk_reaches_every_kernel():
    """A kernel that leaves the table leaves the walk."""
    walked = {case.values[1].__name__ for case in CASES}
    assert len(walked) == 12 and len(CASES) > 150
