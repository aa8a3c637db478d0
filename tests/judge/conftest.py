"""Rows and tables of measurements to test with, made up so that the answer is known."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.judge.silicon_rows import SiliconRow

BASE = {
    "id": "row",
    "silicon_data_source": "source_file=x.csv; silicon_concurrency=8; wip=False",
    "backend": "vllm",
    "backend_version": "0.18.0",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h100_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "128",
    "tp_size": "4.0",
    "attention_dp_size": "1.0",
    "moe_tp_size": "4.0",
    "moe_ep_size": "1.0",
    "silicon_ttft_ms": "150.0",
    "silicon_tpot_ms": "14.0",
}


@pytest.fixture
def silicon_file(tmp_path: Path) -> Callable[..., Path]:
    """``silicon_file({...}, {...})``: a table of rows, each with some columns changed."""

    def write(*changes: dict[str, str]) -> Path:
        path = tmp_path / "silicon_sample.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(BASE))
            writer.writeheader()
            for at, change in enumerate(changes):
                apart = {"id": f"row{at}", "silicon_ttft_ms": f"{150 + at}.0"}
                writer.writerow({**BASE, **apart, **change})
        return path

    return write


@pytest.fixture(scope="session", name="make_row")
def row_builder() -> Callable[..., SiliconRow]:
    """``make_row(isl=...)``: a row of Llama-3.1-8B on one H100."""

    def make(**changes: object) -> SiliconRow:
        values: dict[str, object] = {
            "id": "made", "engine": "vllm", "version": "0.18.0", "spec": get_model("llama-3.1-8b"),
            "gpu": get_gpu("h100"), "system": "h100", "precision": "bf16", "tp": 1, "isl": 512,
            "osl": 64, "concurrency": 4, "ttft": 0.1, "tpot": 0.01,
        }  # fmt: skip
        return SiliconRow(**{**values, **changes})  # type: ignore[arg-type]

    return make
