"""Sweeps: what a row says, and that a sweep which was killed, stopped or repeated loses nothing.

Failures these tests exist for: a row that disagrees with the run it is about, work done twice or
lost after a kill, rows of other code or other data taken for this one's, parallel unlike serial.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.metrics import METRICS
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.slo import goodput, summary
from minilab.sim import sweep_tasks
from minilab.sim.experiment import Experiment
from minilab.sim.sweep import grid, sweep
from minilab.sim.sweep_row import NUMBERS, numbers

COST = json.dumps({"w": 0.005, "f": 1e-4, "k": 1e-7, "s": 1e-5})
SMALL = Experiment(cost=COST, kv_blocks=400, max_num_batched_tokens=512, max_num_seqs=64).with_(
    trace="synthetic", limit=20, prompt_tokens=200, output_tokens=16, rate=6.0, jitter=0.5
)
SLO = "ttft=0.03,itl=0.02"
FIVE = grid(SMALL, seed=[0, 1, 2, 3, 4])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the experiments that were really run (in this process)."""
    keys: list[str] = []
    measure = sweep_tasks._measure

    def counted(identity: Any, task: Any) -> Any:
        keys.append(identity.key)
        return measure(identity, task)

    monkeypatch.setattr(sweep_tasks, "_measure", counted)
    return keys


def run(experiments: list[Experiment], **more: Any) -> list[dict[str, Any]]:
    return sweep(experiments, SLO, progress=False, **more)


# --- rows ----------------------------------------------------------------------------------------


def test_a_row_says_what_the_run_says() -> None:
    experiment = SMALL.with_(instances=2, rate=40.0)
    (row,) = run([experiment])
    log = experiment.run()
    judged, found = goodput(log, SLO, 2), summary(log)
    assert 0 < row["attainment"] < 1, "an SLO that all or nobody meets proves little"
    assert [row[name] for name in ("attainment", "goodput_per_gpu", "throughput")] == [
        *(judged.attainment, judged.goodput_per_gpu, judged.throughput)
    ]
    for name in (*METRICS, "gap"):
        told = {part: row[f"{name}_{part}"] for part in found[name]}
        assert told == pytest.approx(found[name], rel=1e-12)
    assert row["kv_peak_usage"] == log.meta["kv_peak_usage"] > 0
    assert (row["requests"], row["completed"], row["gpus"]) == (20, 20, 2)
    assert row["key"] == experiment.key and row["data"] == "synthetic"
    assert set(row) - {"key", "data"} == set(NUMBERS)


def test_the_hit_rate_is_of_the_tokens_that_were_looked_up() -> None:
    requests = blank_requests(3)
    requests["arrival"][:] = 0.0
    requests["scheduled"][:2] = 1.0  # the third was refused: nobody looked
    requests["prompt_tokens"][:], requests["cached_tokens"][:2] = (300, 100, 9000), (64, 32)
    assert numbers(RunLog(requests))["token_hit_rate"] == 96 / 400
    assert numbers(RunLog(blank_requests(2)))["token_hit_rate"] is None


def test_rows_name_only_the_fields_that_differ_in_the_order_given() -> None:
    rows = run(grid(SMALL, policy=["mixed", "decode-first"], rate=np.array([2, 8])))
    assert [(row["policy"], row["rate"]) for row in rows] == [
        *(("mixed", 2), ("mixed", 8), ("decode-first", 2), ("decode-first", 8))
    ]
    assert list(rows[0])[:3] == ["rate", "policy", "key"]
    json.dumps(rows, allow_nan=False)


def test_without_slos_goodput_is_unavailable_and_not_0() -> None:
    (row,) = sweep([SMALL], progress=False)
    assert row["goodput"] is None and row["attainment"] is None and row["ttft_p50"] > 0


def test_an_experiment_that_occurs_twice_runs_once(ran: list[str]) -> None:
    rows = run([SMALL, SMALL.with_(seed=1), SMALL])
    assert len(ran) == 2 and rows[0] == rows[2] != rows[1]


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ({"policy": "mixed"}, "policy='mixed'; an axis is a list"),
        ({"rate": []}, "at least one"),
        ({"rate": 4.0}, "an axis is a list"),
        ({"polcy": ["mixed"]}, "did you mean policy"),
    ],
)
def test_a_grid_refuses_what_is_no_axis(axes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        grid(SMALL, **axes)


def test_what_cannot_run_is_said_before_anything_runs(tmp_path: Path, ran: list[str]) -> None:
    wrong = [SMALL, SMALL.with_(router="round-robbin")]
    with pytest.raises(InputError, match=r"experiment 2 of 2: unknown router 'round-robbin'"):
        run(wrong, out=tmp_path / "rows.jsonl")
    with pytest.raises(InputError, match="jobs=0"):
        run(FIVE, jobs=0)
    with pytest.raises(InputError, match="no experiments"):
        run([])
    with pytest.raises(InputError, match=r"rows\.parquet: a sweep writes \.jsonl"):
        run(FIVE, out=tmp_path / "rows.parquet")
    assert not ran and not list(tmp_path.iterdir())


# --- in parallel ---------------------------------------------------------------------------------


def test_two_jobs_give_the_rows_of_one(tmp_path: Path) -> None:
    experiments = grid(SMALL, rate=[2.0, 9.0], seed=[0, 1, 2])
    assert run(experiments, jobs=2, out=tmp_path / "two.jsonl") == run(experiments)
    assert len((tmp_path / "two.jsonl").read_text().splitlines()) == 6


def test_without_joblib_and_tqdm_it_runs_here_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.import_module

    def absent(name: str) -> Any:
        if name in ("joblib", "tqdm"):
            raise ImportError(name)
        return find(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    rows = sweep(FIVE, SLO, jobs=2)
    told = capsys.readouterr().err
    assert "joblib is not installed" in told and told.rstrip().endswith("sweep: 5 of 5")
    monkeypatch.undo()
    assert rows == run(FIVE)


def test_a_backend_without_callbacks_still_stores_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's backend gives its results back only at the end of a call, as this one does."""
    joblib = importlib.import_module("joblib")
    seen: list[int] = []
    monkeypatch.setattr(sweep_tasks, "CHUNK", 1)
    append = sweep_tasks.SweepStore.append

    def appended(store: Any, row: dict[str, Any]) -> None:
        seen.append(len(store.rows))
        append(store, row)

    monkeypatch.setattr(sweep_tasks.SweepStore, "append", appended)
    with joblib.parallel_config(backend="multiprocessing"):
        rows = run(FIVE, jobs=2, out=tmp_path / "rows.jsonl")
    assert seen == [0, 1, 2, 3, 4] and rows == run(FIVE)


# --- stopped, killed, repeated -------------------------------------------------------------------

KILLED = """
import sys
sys.path.insert(0, {folder!r})
from test_sweep import SLO, SMALL
from minilab.sim.sweep import grid, sweep
sweep(grid(SMALL, seed=range(3000)), SLO, out={out!r}, progress=False)
"""


def test_after_a_sigkill_only_the_rest_runs(tmp_path: Path, ran: list[str]) -> None:
    out = tmp_path / "rows.jsonl"
    code = KILLED.format(folder=str(Path(__file__).parent), out=str(out))
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 60
        while not out.exists() or out.read_bytes().count(b"\n") < 5:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = out.read_bytes().count(b"\n")
    assert 5 <= kept < 3000, "it must have been in the middle"
    experiments = grid(SMALL, seed=range(kept + 7))
    rows = run(experiments, out=out)
    assert 7 <= len(ran) <= 8, "one row may have been torn"
    assert rows == run(experiments)


def test_ctrl_c_leaves_a_store_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, measure, done = tmp_path / "rows.jsonl", sweep_tasks._measure, []

    def stopped(identity: Any, task: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(identity)
        return measure(identity, task)

    monkeypatch.setattr(sweep_tasks, "_measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(FIVE, out=out)
    assert "rows.jsonl has 3 rows; the same sweep goes on" in capsys.readouterr().err
    monkeypatch.setattr(sweep_tasks, "_measure", measure)
    assert run(FIVE, out=out) == run(FIVE)
    assert len(out.read_text().splitlines()) == 5


def test_other_slos_are_other_rows_and_the_same_written_otherwise_are_not(
    tmp_path: Path, ran: list[str]
) -> None:
    out = tmp_path / "rows.jsonl"
    for slos, runs in (("ttft=0.5,itl=50ms", 1), ("itl=0.05,ttft=0.5", 1), ("ttft=0.001", 2)):
        (row,) = sweep([SMALL], slos, out=out, progress=False)
        assert len(ran) == runs
    assert row["attainment"] == 0.0
