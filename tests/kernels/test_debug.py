"""debug=True: index values are read and checked where the wrapper else would not wait for them."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from minilab.kernels import aot, checks
from minilab.kernels.block_copy import gather_blocks, scatter_blocks
from minilab.kernels.kv_write import kv_write
from minilab.kernels.mla_decode import mla_decode
from minilab.kernels.moe import fused_experts
from minilab.kernels.moe_align import moe_align_block_size
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill
from minilab.kernels.rejection import rejection

# The file whose `good` makes the arguments, and which index is set out of range.
INDEX: dict[Any, tuple[str, str]] = {
    paged_decode: ("test_arguments", "block_tables"),
    paged_prefill: ("test_arguments", "block_tables"),
    kv_write: ("test_arguments", "slot_mapping"),
    gather_blocks: ("test_arguments", "block_ids"),
    scatter_blocks: ("test_arguments", "block_ids"),
    rejection: ("test_arguments", "draft_token_ids"),
    moe_align_block_size: ("test_moe", "topk_ids"),
    fused_experts: ("test_moe", "topk_ids"),
    mla_decode: ("test_mla_decode", "block_tables"),
}


def wrong(kernel: Any) -> tuple[dict[str, Any], str]:
    """Arguments of ``kernel`` with one index far out of range, and that argument's name."""
    file, name = INDEX[kernel]
    good = importlib.import_module(file).good
    arguments = dict(good() if file == "test_mla_decode" else good(kernel))
    arguments[name] = arguments[name].clone()
    arguments[name].view(-1)[0] = 10**6
    return arguments, name


@pytest.mark.parametrize("kernel", INDEX, ids=lambda kernel: kernel.__name__)
def test_checked_before_the_launch_if_asked(monkeypatch, kernel):
    """As on a GPU, where nothing is read unless debug says so: no wild index may be followed."""
    monkeypatch.setattr(checks, "reads_values", lambda tensor, debug: debug)
    arguments, name = wrong(kernel)
    launched = []
    monkeypatch.setattr(
        importlib.import_module(kernel.__module__),
        "choose_backend",
        lambda *_, **__: launched.append(1),
    )
    with pytest.raises(ValueError, match=rf"^{name}.*1000000"):
        kernel(**arguments, debug=True)
    assert not launched
    with pytest.raises(AttributeError):  # goes on to the backend, which is None here
        kernel(**arguments)
    assert launched


def test_read_on_a_gpu_only_if_asked():
    """Reading waits for the device; on the CPU it costs nothing."""
    there = SimpleNamespace(device=torch.device("cuda"))
    assert checks.reads_values(there, debug=True) and not checks.reads_values(there, debug=False)
    assert checks.reads_values(torch.zeros(1), debug=False)


def test_every_kernel_with_indices_has_it():
    """A wrapper with `debug` that is not in the table above was not tried."""
    having = {
        function
        for module in map(importlib.import_module, (f"minilab.kernels.{n}" for n in aot.MODULES))
        for function in vars(module).values()
        if inspect.isfunction(function) and "debug" in inspect.signature(function).parameters
        if not function.__name__.startswith("_") and function.__module__ == module.__name__
    }
    assert having == set(INDEX)
