"""benchmarks/gpu.py: what of it needs no GPU. Its numbers can only come from one."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minilab.kernels import aot

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = ("common", "gpu", "on_gpu", "on_gpu.attention", "on_gpu.copies", "on_gpu.measure")
ROW = {
    "kernel": "paged_decode", "case": "64 x 4096", "backend": "triton", "error": 2e-3,
    "tolerance": 8e-3, "right": True, "floor_us": 250.0, "goal": 0.85, "us": 280.0, "share": 0.89,
    "reference_us": 90_000.0, "torch": "SDPA", "torch_us": 300.0, "queued": True, "met": True,
}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu

    yield gpu
    for name in (*MODULES, "on_gpu.products"):
        sys.modules.pop(name, None)


def test_no_gpu(gpu, monkeypatch, capsys):
    """One line, and no failure: `make bench` runs everywhere."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_rehearsal(python):
    """Every case runs and is right, and what it is compared with computes the same thing."""
    pytest.importorskip("triton", reason="needs triton")
    done = python(FOLDER / "gpu.py", "--rehearse", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert all(" interpreter " in line for line in lines)
    differences = [float(x) for x in re.findall(r"differs by (\S+)\)", done.stdout)]
    # FP8 and INT4 are compared with 16 bits: they differ by their own rounding.
    assert len(differences) > 8 and max(differences) < 0.2
    measured = {line.split()[0] for line in lines}
    assert len(measured) > 10 and "paged_decode" in measured


def test_no_kernel_is_forgotten(gpu):
    """Each kernel file has a case, native FP8 where there is hardware for it."""
    modules = {
        "gather_blocks": "block_copy", "scatter_blocks": "block_copy", "fused_experts": "moe",
        "scaled_mm": "quant_gemm", "w4a16_gemm": "quant_gemm_int4",
    }  # fmt: skip
    cpu = torch.device("cpu")
    cases = list(gpu.cases(gpu.World(cpu, 90, tiny=True), None))
    assert {modules.get(case.kernel, case.kernel) for case in cases} == set(aot.MODULES)
    native = {case.kernel for case in cases if "native" in case.label}
    assert native == {"paged_decode", "mla_decode", "kv_write", "scaled_mm"}
    on_a_t4 = list(gpu.cases(gpu.World(cpu, 75, tiny=True), None))
    assert not any("native" in case.label or case.rate == "bf16" for case in on_a_t4)


def test_rehearsal_finds_a_wrong_kernel(gpu, monkeypatch, capsys):
    """A check that lets everything through is none."""
    from minilab.kernels import moe_align

    broken = moe_align.moe_align_block_size

    def shifted(*args, **options):
        found = broken(*args, **options)
        found.sorted_token_ids.add_(1)
        return found

    monkeypatch.setattr(moe_align, "moe_align_block_size", shifted)
    assert gpu.main(["--rehearse", "--kernel", "moe_align"]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_floor_and_sets(gpu):
    """The slower of bytes and FLOPs; enough inputs to miss the cache, not more than memory."""
    from on_gpu.measure import floor_us, input_sets, slug

    assert floor_us((4_000_000, 10), 4e12, 1e15) == pytest.approx(1.0)
    assert floor_us((4, 2_000_000_000), 4e12, 1e15) == pytest.approx(2.0)
    assert input_sets(10**9, 50 * 2**20) == 2 and input_sets(100, 50 * 2**20) == 8
    assert input_sets(40 * 2**20, 50 * 2**20) == 5
    assert slug("NVIDIA A100-SXM4-80GB") == "a100-sxm4-80gb" and slug("Tesla T4") == "t4"
    assert slug("NVIDIA H200") == "h200"


@pytest.mark.parametrize(
    ("changed", "or_torch", "met"),
    [
        ({}, False, True),
        ({"right": False}, False, False),
        ({"share": 0.5}, False, False),
        ({"share": 0.5}, True, True),
        ({"share": 0.5, "torch_us": None}, True, False),
        ({"share": 0.5, "goal": None}, False, True),
        ({"us": 100_000.0, "goal": None}, False, False),
    ],
)
def test_goals(gpu, changed, or_torch, met):
    """Wrong, too far from the floor, or slower than plain torch: each alone is a miss."""
    row = {**ROW, **changed}
    assert gpu.is_met(row, or_torch) is met
    assert ("met" if met else "MISSED") in gpu.line(gpu.cells({**row, "met": met}))


def test_twin_where_the_kernel_has_no_variant(gpu):
    """On a T4 some kernels run as plain torch; that is no failure, and no time of ours."""
    row = {key: value for key, value in ROW.items() if key not in ("us", "share")}
    assert gpu.is_met({**row, "backend": "reference"}, False)
    assert " reference " in gpu.line(gpu.cells({**row, "backend": "reference"}))


def test_failing_case_is_a_row(gpu, monkeypatch):
    """One kernel out of memory must not cost the others their numbers."""

    def fail(*_):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(gpu, "measure", fail)
    case = SimpleNamespace(kernel="k", label="big")
    row = gpu.guarded(case, None, None, 3)
    assert row == {
        "kernel": "k",
        "case": "big",
        "failed": "RuntimeError: out of memory",
        "met": False,
    }
    assert "out of memory" in gpu.line(gpu.cells(row))


class Mark:
    """A CUDA event, by the clock on the wall, of a GPU that has not caught up yet."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def query(self):
        return False

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)


def test_rows_of_every_case(gpu, monkeypatch):
    """The whole way from a case to its row, with the GPU's clock played by the CPU's."""
    monkeypatch.setattr(torch.cuda, "Event", Mark)
    for name in ("synchronize", "_sleep", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace())
    peaks = SimpleNamespace(bandwidth=1e12, rate=lambda _: 1e15)
    world = gpu.World(torch.device("cpu"), 0, tiny=True)
    for case in gpu.cases(world, None):
        ran = {case.kernel: SimpleNamespace(name="triton")}
        monkeypatch.setattr(gpu.device, "backends_used", lambda ran=ran: nullcontext(ran))
        row = gpu.guarded(case, world, peaks, 2)
        assert "failed" not in row and row["us"] >= row["least_us"] > 0 and row["queued"]
        assert row["right"] and 0 < row["share"] < 1 and row["reference_us"] > 0
        assert case.torch is None or row["torch_us"] > 0
        assert case.label in gpu.line(gpu.cells(row))
        json.dumps(row)


def test_result_file(gpu, monkeypatch, tmp_path, capsys):
    """A number is worth what is written beside it: card, driver, versions, date, measured peaks."""
    import common

    peaks = {"copy_bytes_per_s": 4.3e12, "flops_per_s": {"bf16": 7.9e14}}
    fake = SimpleNamespace(bandwidth=4.3e12, to_dict=lambda: peaks)
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "Peaks", lambda _: fake)
    monkeypatch.setattr(gpu, "measure", lambda case, *_: {**ROW, "kernel": case.kernel})
    monkeypatch.setattr(gpu.device, "capability_of", lambda _: 90)
    monkeypatch.setattr(gpu.device, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    small = list(gpu.cases(gpu.World(torch.device("cpu"), 0, tiny=True), ["rejection"]))
    monkeypatch.setattr(gpu, "cases", lambda *_: small)
    assert gpu.main(["--strict"]) == 0
    result = json.loads((tmp_path / "gpu_h200.json").read_text())
    assert result["card"] == "NVIDIA H200" and result["peaks"] == peaks
    assert result.keys() >= {"driver", "cuda", "torch", "triton", "date", "capability"}
    assert [row["kernel"] for row in result["rows"]] == ["rejection"]
    assert "4,300 GB/s" in capsys.readouterr().out
    monkeypatch.setattr(gpu, "measure", lambda *_: {**ROW, "met": False})
    assert gpu.main(["--strict", "--no-write"]) == 1 and gpu.main(["--no-write"]) == 0
