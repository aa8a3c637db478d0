"""PublishedRun: a run of a real vLLM, published request by request with LLMServingSim 2.0.

``requests.jsonl`` has lengths and times, ``meta.json`` the engine's settings. The clock of
``arrival_time`` is another one than that of the engine's stamps, so TTFT counts from ``queued_ts``,
as the publishers do; the engine reads its inbox between steps, so that misses up to one step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, gpus
from minilab.facts.models import ModelSpec, get_model
from minilab.facts.request import Request
from minilab.facts.user_input import read_json
from minilab.judge.launches import Launch
from minilab.judge.protocol import kv_blocks
from minilab.judge.terms import Array

RUNS = ("RTX4090_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B")

_FIELDS = ("input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts",
           "last_token_ts")  # fmt: skip


@dataclass(frozen=True)
class PublishedRun:
    """Requests as they were sent (arrivals from 0, seconds), and what came of them.

    ``ttft`` and ``tpot`` are float64[R] seconds in order of the requests; ``makespan`` is seconds
    from the first arrival to the last token.
    """

    name: str
    spec: ModelSpec
    gpu: GPU
    tp: int
    launch: Launch
    max_num_seqs: int
    num_blocks: int
    block_size: int
    prefix_cache: bool
    requests: tuple[Request, ...]
    ttft: Array
    tpot: Array
    makespan: float
    version: str

    @classmethod
    def read(cls, folder: str | Path) -> PublishedRun:
        """The run in ``folder``, named GPU_Model. Raises InputError."""
        folder = Path(folder)
        card, _, model = folder.name.partition("_")
        gpu = _card(card, folder)
        meta = read_json(folder / "meta.json")
        args = meta["engine_kwargs"]
        rows = _rows(folder / "requests.jsonl")
        columns = {name: np.array([row[name] for row in rows], float) for name in _FIELDS}
        sent = columns["arrival_time"] - columns["arrival_time"][0]
        made = [
            Request(at, float(sent[at]), int(row["input_toks"]), int(row["output_toks"]))
            for at, row in enumerate(rows)
        ]
        spec, tp = get_model(model.lower()), args["tensor_parallel_size"]
        launch = Launch(budget=args["max_num_batched_tokens"])
        pool = meta.get("kv_cache") or {}
        run = cls(
            name=folder.name,
            spec=spec,
            gpu=gpu,
            tp=tp,
            launch=launch,
            max_num_seqs=args["max_num_seqs"],
            # vLLM keeps one block back as the null block.
            num_blocks=(pool.get("num_gpu_blocks") or 1) - 1,
            block_size=pool.get("block_size", 16),
            prefix_cache=bool(pool.get("enable_prefix_caching", True)),
            requests=tuple(made),
            ttft=columns["first_token_ts"] - columns["queued_ts"],
            tpot=(columns["last_token_ts"] - columns["first_token_ts"])
            / np.maximum(1, columns["output_toks"] - 1),
            makespan=float(columns["last_token_ts"].max() - columns["queued_ts"].min()),
            version=meta["vllm_version"],
        )
        if run.num_blocks > 0:
            return run
        return PublishedRun(**{**run.__dict__, "num_blocks": kv_blocks(run)})


def _card(name: str, folder: Path) -> GPU:
    """The GPU that a folder's name begins with, dashes left out: RTX4090 is rtx-4090."""
    known = {gpu.name.replace("-", ""): gpu for gpu in gpus().values()}
    if name.lower() not in known:
        names = ", ".join(sorted(known))
        raise InputError(f"{folder}: card {name!r} is unknown; name it CARD_Model, one of {names}")
    return known[name.lower()]


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give a published run"
        ) from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            values = [float(row[name]) for name in _FIELDS]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: {error}; needs {', '.join(_FIELDS)}") from None
        if min(values[:2]) < 1:
            raise InputError(f"{path}:{number}: lengths {values[:2]}; at least 1 token each")
        if not values[3] <= values[4] <= values[5]:
            raise InputError(f"{path}:{number}: queued, first and last token are out of order")
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: no requests")
    return sorted(rows, key=lambda row: float(row["arrival_time"]))
