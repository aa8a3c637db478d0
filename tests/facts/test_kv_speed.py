"""FP8 KV: break-even, slopes and gain against what was published, and the support table."""

from __future__ import annotations

import math

import pytest

from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.kv_speed import Line, break_even, gain, kv_speed, published, slope_table
from minilab.facts.kv_support import kv_support, read_on
from minilab.facts.models import get_model


def test_break_even_contexts() -> None:
    """Llama-3.1-8B on H100: 0.14 ms over 2.0e-5; gpt-oss-20b on B200: 0.02 over 1.5e-6."""
    found = {(p.gpu, p.model): break_even(p.bf16, p.fp8) for p in published()}
    assert found["h100", "llama-3.1-8b"] == pytest.approx(7000, rel=1e-6)
    assert found["b200", "gpt-oss-20b"] == pytest.approx(13_333, rel=1e-4)
    for one in published():
        assert break_even(one.bf16, one.fp8) == pytest.approx(one.break_even, rel=0.1)


def test_break_even_at_the_ends() -> None:
    """Never where nothing is saved (A100: values are widened first), always where it costs none."""
    assert break_even(Line(5, 1e-5), Line(5.1, 1e-5)) == math.inf
    assert break_even(Line(5, 2e-5), Line(5, 1e-5)) == 0
    line = Line(5, 2e-5)
    assert line.at(1000) == pytest.approx(5.02)


def test_decode_slopes_within_a_quarter() -> None:
    """Bytes over bandwidth predicts them; FP8 of gpt-oss does not reach it (12 of 24 layers are
    windowed, heads of 64: its kernels are not bound by these bytes)."""
    rows = slope_table()
    close = [r for r in rows if not (r["model"] == "gpt-oss-20b" and r["kv_dtype"] == "fp8")]
    assert len(close) == 6
    assert all(1.0 < row["ratio"] < 1.25 for row in close)
    far = [row["ratio"] for row in rows if row not in close]
    assert all(1.25 < ratio < 2.1 for ratio in far)


def test_gain_on_an_l4() -> None:
    """vLLM's documentation: +1, +6, +11, +21 % at 2k to 32k; within 3 points."""
    table = kv_speed()["l4"]
    for context, measured in zip(table["context"], table["gain_percent"], strict=True):
        assert abs(100 * gain(get_model("qwen3-4b"), context) - measured) <= 3
    with pytest.raises(InputError, match="context is -1"):
        gain(get_model("qwen3-4b"), -1)


def test_support_by_gpu() -> None:
    """FA2 has no FP8 KV: on an A100 the flag changes the backend, on an H100 it does not."""
    by_gpu = {
        name: {r.backend: r for r in kv_support(get_gpu(name))}
        for name in ("a100-80g", "h100", "t4")
    }
    assert not by_gpu["a100-80g"]["FLASH_ATTN (FA2)"].fp8
    assert "FLASH_ATTN (FA3)" in by_gpu["h100"] and "FLASH_ATTN (FA3)" not in by_gpu["a100-80g"]
    assert "kernels, hardware FP8" not in by_gpu["a100-80g"]
    assert any(row.fp8 for row in by_gpu["t4"].values())
    assert kv_support(get_gpu("mi300x")) == []
    assert read_on().startswith("20") and all(row.source for row in kv_support())
