"""Launch: a job on several processes of this machine, and what each of them says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from minilab.engine.moe.group import GroupError
from minilab.engine.moe.worker import Job, write_job


@dataclass(frozen=True)
class RankResult:
    """What one process did.

    Attributes:
        tokens: of each of its prompts.
        sent_bytes, sent_rows: what it sent to others, by kind.
        logits: float32 [tokens, vocab_size] of each of its prompts, if the job asked for them.
    """

    tokens: list[list[int]]
    sent_bytes: dict[str, int]
    sent_rows: dict[str, int]
    num_steps: int
    logits: list[torch.Tensor]


def start(folder: Path, rank: int, size: int) -> subprocess.Popen[str]:
    """One worker; it listens on the loopback only."""
    command = [sys.executable, "-m", "minilab.engine.moe.worker", str(rank), str(size), str(folder)]
    here = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=here, stderr=subprocess.PIPE, text=True)


def run_ranks(job: Job, size: int, longest: float = 600.0) -> list[RankResult]:
    """Run a job on ``size`` processes; none is left running whatever happens.

    Raises:
        GroupError: a process failed; says what the first of them said.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_job(job, folder)
        workers = [start(folder, rank, size) for rank in range(size)]
        try:
            _wait(workers, longest)
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
        return [_result(folder, rank) for rank in range(size)]


def _result(folder: Path, rank: int) -> RankResult:
    from safetensors.torch import load_file

    said = json.loads((folder / f"rank-{rank}.json").read_text())
    file = folder / f"rank-{rank}.safetensors"
    kept = load_file(file) if file.is_file() else {}
    return RankResult(**said, logits=[kept[key] for key in sorted(kept, key=int)])


def _wait(workers: list[subprocess.Popen[str]], longest: float) -> None:
    """Until all are done; one that fails ends the wait."""
    end = time.monotonic() + longest
    while any(worker.poll() is None for worker in workers):
        failed = next((w for w in workers if w.poll() not in (None, 0)), None)
        if failed is not None:
            break
        if time.monotonic() > end:
            raise GroupError(f"{len(workers)} processes: not done after {longest:g} s; gave up")
        time.sleep(0.05)
    for worker in workers:
        if worker.poll() not in (None, 0):
            said = (worker.stderr.read() if worker.stderr else "").strip().splitlines()
            raise GroupError(said[-1] if said else f"a process ended with {worker.returncode}")
