"""Experts on several processes: the same numbers, the right volume, and no hang when one dies.

Every process is a real one, started as a module; they meet through a file and speak gloo.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from deepseek_worlds import CONFIG, HF, random_weights
from safetensors.torch import save_file

from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.loader import load
from minilab.engine.moe.dispatch import Placement, per_pair, per_rank
from minilab.engine.moe.group import Group
from minilab.engine.moe.launch import RankResult, run_ranks, start
from minilab.engine.moe.tensor_parallel import tensor_slice
from minilab.engine.moe.worker import Job, LogitsLog, run_together, shared_llm, write_job
from minilab.facts.errors import InputError

DICE = torch.Generator().manual_seed(3)
PROMPTS = [torch.randperm(97, generator=DICE)[: 5 + 4 * i].tolist() for i in range(5)]
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"


def checkpoint(path: Path, **tensors: torch.Tensor) -> str:
    (path / "config.json").write_text(json.dumps(HF))
    save_file({**random_weights(), **tensors}, path / "model.safetensors")
    return str(path)


def by_prompt(results: list[RankResult], what: str) -> list[Any]:
    """The ranks' prompts in the order of the job: prompt i ran on rank i % size."""
    parts = [getattr(result, what) for result in results]
    count = sum(len(part) for part in parts)
    return [parts[i % len(parts)][i // len(parts)] for i in range(count)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: Any) -> RankResult:
    return in_one(Job(checkpoint(tmp_path_factory.mktemp("alone")), PROMPTS, max_tokens=6))


def in_one(job: Job) -> RankResult:
    """The job in this process, with all experts."""
    group = Group(0, 1, timeout=30.0)
    config, weights = load(job.checkpoint)
    assert isinstance(config, DeepseekConfig)
    llm = shared_llm(job, config, weights, group)
    log = LogitsLog(llm)
    tokens = run_together(llm, group, job.prompts, job.max_tokens)
    logits = [torch.cat(rows) for rows in log.rows.values()]
    return RankResult(tokens, dict(group.sent_bytes), dict(group.sent_rows), llm.num_steps, logits)


def same(results: list[RankResult], alone: RankResult) -> None:
    assert by_prompt(results, "tokens") == alone.tokens
    for got, wanted in zip(by_prompt(results, "logits"), alone.logits, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "sending"),
    [(2, "per_rank"), pytest.param(4, "per_pair", marks=pytest.mark.slow)],
)
def test_experts_apart_are_experts_together(
    size: int, sending: str, alone: RankResult, tmp_path: Path
) -> None:
    """Five prompts on four processes: they end at different steps, and idle ranks still serve."""
    job = Job(checkpoint(tmp_path), PROMPTS, max_tokens=6, sending=sending, logits=True)
    results = run_ranks(job, size)
    same(results, alone)
    assert alone.sent_bytes.get("dispatch", 0) == 0, "one process sends nothing"
    for result in results:
        rows, sent = result.sent_rows, result.sent_bytes
        assert sent["dispatch"] == rows["dispatch"] * CONFIG.hidden_size * 4
        assert rows["labels"] == rows["dispatch"] > 0
    # What was sent comes back: the sums agree over the group, not in each process.
    total = [sum(r.sent_rows[kind] for r in results) for kind in ("dispatch", "combine")]
    assert total[0] == total[1]
    if sending == "per_pair":
        tokens = sum(len(p) for p in PROMPTS) + 5 * len(PROMPTS)
        assert total[0] < 3 * tokens, "rows to oneself must not count"


@pytest.mark.slow
def test_processes_without_a_prompt_take_part(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    wanted = in_one(Job(folder, PROMPTS[:1], max_tokens=4))
    results = run_ranks(Job(folder, PROMPTS[:1], max_tokens=4, logits=True), 4)
    assert [len(result.tokens) for result in results] == [1, 0, 0, 0]
    same(results, wanted)


@pytest.mark.slow
def test_all_tokens_to_the_experts_of_one_process(tmp_path: Path) -> None:
    """A bias sends every token to experts 0 to 2: rank 3 gets nothing, and nothing breaks."""
    bias = torch.tensor([9.0, 9.0, 9.0, 0, 0, 0, 0, 0])
    folder = checkpoint(tmp_path, **{BIAS: bias})
    wanted = in_one(Job(folder, PROMPTS, max_tokens=4))
    results = run_ranks(Job(folder, PROMPTS, max_tokens=4, logits=True), 4)
    same(results, wanted)
    assert results[2].sent_rows.get("combine", 0) == results[3].sent_rows.get("combine", 0) == 0
    assert results[0].sent_rows["combine"] > 0


@pytest.mark.slow
def test_slices_of_every_matrix_are_the_matrices(alone: RankResult, tmp_path: Path) -> None:
    """All ranks compute all prompts, and two sums per layer are all that they send."""
    job = Job(checkpoint(tmp_path), PROMPTS, max_tokens=6, mode="tp", logits=True)
    for result in run_ranks(job, 2):
        same([result], alone)
        tokens = sum(len(p) for p in PROMPTS) + 5 * len(PROMPTS)
        assert result.sent_rows["all_reduce"] == tokens * 2 * CONFIG.num_layers
        # A ring of two sends each number once: 2 (n - 1) / n = 1.
        assert result.sent_bytes["all_reduce"] == result.sent_rows["all_reduce"] * 48 * 4


def test_slices_that_do_not_come_out_even_are_refused() -> None:
    with pytest.raises(InputError, match="num_heads is 4; 3 processes cannot share it evenly"):
        tensor_slice(CONFIG, {}, 0, 3)


def test_a_process_that_dies_is_an_error_and_no_hang(tmp_path: Path) -> None:
    write_job(Job(checkpoint(tmp_path), PROMPTS, max_tokens=900, timeout=20.0), tmp_path)
    workers = [start(tmp_path, rank, 2) for rank in range(2)]
    try:
        wait_for(tmp_path / "started-1", workers)
        workers[1].send_signal(signal.SIGKILL)
        _, said = workers[0].communicate(timeout=60)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert workers[0].returncode == 3
    assert "rank 0 of 2" in said and "another process is gone" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_process_that_never_comes_is_an_error(tmp_path: Path) -> None:
    write_job(Job(checkpoint(tmp_path), PROMPTS, timeout=2.0), tmp_path)
    worker = start(tmp_path, 0, 2)
    _, said = worker.communicate(timeout=120)
    assert worker.returncode == 3 and "meeting failed" in said and "longer than 2 s" in said


def wait_for(file: Path, workers: list[Any]) -> None:
    for _ in range(1200):
        if file.exists():
            return
        assert all(worker.poll() is None for worker in workers), workers[0].stderr.read()
        time.sleep(0.1)
    raise AssertionError(f"{file} did not come")


RANKS = torch.tensor([[0, 0, 1], [2, 2, 2], [1, 0, 2]])


def test_rows_per_rank_and_per_pair_by_hand() -> None:
    """Token 0 goes to ranks 0 and 1, token 1 to rank 2 only, token 2 to all three."""
    rows = per_rank(RANKS, 4)
    assert rows.counts == [2, 2, 2, 0] and rows.token.tolist() == [0, 2, 0, 2, 1, 2]
    assert rows.keep.tolist()[0] == [True, True, False] and rows.keep.sum() == RANKS.numel()
    pairs = per_pair(RANKS, 4)
    assert pairs.counts == [3, 2, 4, 0] and pairs.token.tolist() == [0, 0, 2, 0, 2, 1, 1, 1, 2]
    assert pairs.keep.sum(1).tolist() == [1] * 9


def test_placement_gives_every_expert_one_place() -> None:
    for experts, size in ((8, 2), (8, 3), (2, 4)):
        placed = Placement.contiguous(experts, size)
        pairs = set(zip(placed.rank.tolist(), placed.slot.tolist(), strict=True))
        assert len(pairs) == experts and max(placed.rank.tolist()) < size
        counts = placed.rank.bincount(minlength=size)
        assert counts.max() - counts.min() <= 1
