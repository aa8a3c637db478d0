"""Result files of the tools, small ones made by hand and two recorded ones.

The builders give what a tool writes, as Python objects; a test changes its copy and ``save``s it.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DATA = Path(__file__).with_name("data")
BIGBUDGET = DATA / "vllm032_bigbudget.bench.json.gz"
GUIDELLM = DATA / "guidellm081_poisson.json.gz"

TTFTS = [0.25, 0.125, 0.0, 0.5]
ITLS = [[0.0317, 0.0173, 0.2511], [0.0123], [], []]
OUTPUT_LENS = [4, 2, 0, 1]
"""Four requests: one with a stall, a short one, one that failed, one of a single token."""


@pytest.fixture
def bigbudget() -> Path:
    """A recorded vLLM run whose long prefills stall the others' decodes."""
    return BIGBUDGET


@pytest.fixture
def guidellm_file() -> Path:
    """A recorded guidellm run, 20 requests, which were all sent within 80 ms."""
    return GUIDELLM


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """``save(value, ...)``: a file with one JSON value, or one a line; gzip if asked."""

    def write(*values: Any, name: str = "result.json", pack: bool = False) -> Path:
        text = "\n".join(v if isinstance(v, str) else json.dumps(v) for v in values)
        data = text.encode("utf-8", "surrogatepass")
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if pack else data)
        return path

    return write


@pytest.fixture
def vllm_run() -> dict[str, Any]:
    """Four requests, 10 s; the third failed."""
    return vllm()


@pytest.fixture
def sglang_run() -> dict[str, Any]:
    """The same four, without start times and latencies, native backend."""
    return sglang()


@pytest.fixture
def aiperf_records() -> list[dict[str, Any]]:
    """The same four, and one of the warm-up."""
    return aiperf()


@pytest.fixture
def guidellm_report() -> dict[str, Any]:
    """The recorded report without its texts."""
    return guidellm()


@pytest.fixture
def inference_perf_list() -> list[dict[str, Any]]:
    """The same four, tokens of a chunk at the chunk's time."""
    return inference_perf()


@pytest.fixture(scope="session")
def examples() -> dict[str, list[Any]]:
    """A good file of each format, as its JSON values, one a line."""
    return {
        "vllm": [vllm()],
        "sglang": [sglang(), sglang()],
        "aiperf": list(aiperf()),
        "guidellm": [guidellm()],
        "inference-perf": [inference_perf()],
    }


def vllm() -> dict[str, Any]:
    latencies = [t + sum(row) for t, row in zip(TTFTS, ITLS, strict=True)]
    return {
        "date": "20260102-030405",
        "backend": "openai",
        "model_id": "tiny",
        "tokenizer_id": "tiny",
        "num_prompts": 4,
        "request_rate": 0.5,
        "duration": 10.0,
        "completed": 3,
        "failed": 1,
        "request_throughput": 0.3,
        "total_token_throughput": 100.0,
        "request_goodput": None,
        "input_lens": [100, 200, 300, 400],
        "output_lens": list(OUTPUT_LENS),
        "ttfts": list(TTFTS),
        "itls": copy.deepcopy(ITLS),
        "latencies": latencies,
        "start_times": [1000.0, 1002.0, 1004.0, 1006.0],
        "queue_times": [0.0, 0.001, 0.0, 0.003],
        "generated_texts": ["a", "b", "", "d"],
        "errors": ["", "", "Traceback\n  boom\nValueError: refused", ""],
    }


def sglang() -> dict[str, Any]:
    run = vllm()
    for name in (
        "start_times", "latencies", "queue_times", "date", "total_token_throughput",
        "tokenizer_id", "model_id",
    ):  # fmt: skip
        del run[name]
    run["backend"] = "sglang"
    run["total_output_tokens_retokenized"] = 7
    run["mean_e2e_latency_ms"] = float("nan")
    run["server_info"] = {"version": "0.5.23"}
    run["itls"] = [[0.031700000000123, 0.017300000000456, 0.251100000000789], [0.0123], [], []]
    return run


def aiperf() -> list[dict[str, Any]]:
    start = 1_759_813_207_532_900_363
    records = []
    for i, (ttft, row, tokens) in enumerate(zip(TTFTS, ITLS, OUTPUT_LENS, strict=True)):
        sent = start + i * 2_000_000_000
        metadata = {
            "session_num": i,
            "request_start_ns": sent,
            "request_ack_ns": None,
            "request_end_ns": sent + 900_000_000,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        metrics: dict[str, Any] = {
            "input_sequence_length": {"value": 100 * (i + 1), "unit": "tokens"},
            "output_sequence_length": {"value": tokens, "unit": "tokens"},
            "time_to_first_token": {"value": ttft * 1e3, "unit": "ms"},
            "request_latency": {"value": (ttft + sum(row)) * 1e3, "unit": "ms"},
        }
        if row:
            metrics["inter_chunk_latency"] = {"value": [g * 1e3 for g in row], "unit": "ms"}
        error = None
        if not tokens:
            metrics = {"error_isl": {"value": 300, "unit": "tokens"}}
            error = {"code": 500, "type": "ServerError", "message": "boom"}
        records.append({"metadata": metadata, "metrics": metrics, "error": error})
    warmup = copy.deepcopy(records[0])
    warmup["metadata"]["benchmark_phase"] = "warmup"
    warmup["metadata"]["request_start_ns"] = start - 5_000_000_000
    return [warmup, *records]


def guidellm() -> dict[str, Any]:
    report: dict[str, Any] = json.loads(gzip.decompress(GUIDELLM.read_bytes()))
    for request in report["benchmarks"][0]["requests"]["successful"]:
        request["output"] = request["request_args"] = None
    return report


def inference_perf() -> list[dict[str, Any]]:
    requests = []
    for i, (ttft, row, tokens) in enumerate(zip(TTFTS, ITLS, OUTPUT_LENS, strict=True)):
        start = 500.0 + 2 * i
        times = (start + ttft + np.cumsum([0.0, *row])).tolist() if tokens else []
        requests.append(
            {
                "start_time": start,
                "end_time": (times or [start + 0.75])[-1] + 0.001,
                "request": "{}",
                "response": "",
                "info": {
                    "request_metrics": {"text": {"input_tokens": 100 * (i + 1)}},
                    "response_metrics": {"output_tokens": tokens, "output_token_times": times},
                    "lora_adapter": None,
                },
                "error": None if tokens else {"error_type": "TimeoutError", "error_msg": "boom"},
            }
        )
    return requests
