"""Replaying published runs, and carrying constants to another model."""

from __future__ import annotations

import json

import pytest

from minilab.facts.errors import InputError
from minilab.judge import replay
from minilab.judge.carry import carried
from minilab.judge.replay_run import RUNS, PublishedRun
from minilab.judge.replays import replay_all


@pytest.fixture
def run_folder(tmp_path):
    """A published run of two requests, its second line changed."""

    def write(**changes: object):
        folder = tmp_path / RUNS[0]
        folder.mkdir(exist_ok=True)
        engine = {"tensor_parallel_size": 1, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
        pool = {"num_gpu_blocks": 101, "block_size": 16}
        meta = {"engine_kwargs": engine, "kv_cache": pool, "vllm_version": "0.0"}
        (folder / "meta.json").write_text(json.dumps(meta))
        row = {"input_toks": 100, "output_toks": 11, "arrival_time": 5.0, "queued_ts": 1.0,
               "first_token_ts": 1.5, "last_token_ts": 2.5}  # fmt: skip
        rows = [row, {**row, "arrival_time": 6.5, **changes}]
        (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        return folder

    return write


def test_run_by_hand(run_folder):
    """Times are the engine's own, gaps are one less than tokens, one block is vLLM's null block."""
    run = PublishedRun.read(run_folder())
    assert run.ttft.tolist() == [0.5, 0.5] and run.tpot.tolist() == [0.1, 0.1]
    assert [request.arrival for request in run.requests] == [0.0, 1.5]
    assert (run.num_blocks, run.gpu.name, run.spec.name) == (100, "rtx-4090", "llama-3.1-8b")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"output_toks": -4}, r"requests.jsonl:2: lengths \[100.0, -4.0\]; at least 1 token"),
        (
            {"first_token_ts": 0.2},
            "requests.jsonl:2: queued, first and last token are out of order",
        ),
        ({"queued_ts": None}, "requests.jsonl:2: .*needs input_toks"),
    ],
)
def test_wrong_lines_are_refused(run_folder, changes, says):
    """A wrong time stamp would be fitted as if it were a slow card."""
    with pytest.raises(InputError, match=says):
        PublishedRun.read(run_folder(**changes))


def test_unknown_card(tmp_path):
    """Which card it was decides the bandwidth; guessing is worse than refusing."""
    with pytest.raises(InputError, match="card 'TPU9' is unknown"):
        PublishedRun.read(tmp_path / "TPU9_Llama-3.1-8B")


def test_published_runs_within_three_percent(data_folder):
    """p50 and p90 of TTFT and TPOT with two terms fitted on the run itself."""
    rows = replay_all(data_folder("llmservingsim-bench"))
    assert [row["run"] for row in rows] == list(RUNS)
    for row in rows:
        case = row["cases"]["two terms fitted"]
        assert len(case["fitted"]) <= 4
        for metric in ("ttft", "tpot"):
            for quantile in ("p50", "p90"):
                assert abs(case[metric][quantile]) < 0.03, (row["run"], metric, quantile)
        assert row["warning"] is None
        assert abs(case["makespan"]) < 0.03
    preempting, roomy = (row["cases"]["two terms fitted"]["preemptions"] for row in rows)
    assert (
        preempting > 100 and roomy == 0
    )  # 2,587 blocks bind on the one card, nothing on the other


def test_fit_improves_on_the_data_sheet(data_folder):
    """A fit that changes nothing would pass where the prior happens to be right."""
    run = PublishedRun.read(data_folder("llmservingsim-bench") / RUNS[0])
    before = replay.distance(run, replay.replay(run, replay.start_of(run)).requests)
    fitted = replay.fit_run(run, replay.start_of(run), replay.terms_of(run), rounds=4)
    after = replay.distance(run, replay.replay(run, fitted.constants).requests)
    assert after < before / 4


def test_constants_carry_to_another_model(data_folder):
    """BLOOM from Llama-2, OPT-66B from OPT-13B: a report, but one that cannot be off by a unit."""
    data_folder("distserve-profile")
    rows = carried(data_folder("splitwise-perf").parent)
    assert len(rows) == 4
    for row in rows:
        others = [e for e in row["errors"] if e["model"] != row["fitted_on"]]
        assert {e["kind"] for e in others} == {"prefill", "decode"}
        assert all(e["median"] < 0.3 for e in others), row
