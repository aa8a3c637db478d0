"""Disaggregated rows: read as they say, refused where they don't, scored without a fit.

Failure this exists for: a row whose pools are guessed, which would make an error that is ours look
like the simulator's (or hide it).
"""

from __future__ import annotations

import pytest

from minilab.judge.silicon_rows import FILE, read_table
from minilab.judge.silicon_split import SplitScore, error_table, read_split, score

ROW = {
    "id": "one",
    "mode": "disagg",
    "silicon_data_source": "db-dump; silicon_concurrency=4; x",
    "backend": "sglang",
    "backend_version": "0.5.8",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "precision": "bf16",
    "isl": "1024",
    "osl": "64",
    "prefill_num_workers": "2.0",
    "prefill_tp_size": "2.0",
    "decode_num_workers": "1.0",
    "decode_tp_size": "4.0",
    "silicon_ttft_ms": "120.0",
    "silicon_tpot_ms": "12.0",
}


def test_a_row_becomes_the_pools_it_names() -> None:
    (row,), refused = read_split([ROW, {**ROW, "mode": "agg"}])
    e = row.experiment
    assert (e.prefill_instances, e.prefill_tp, e.instances, e.tp) == (2, 2, 1, 4)
    assert e.gpus == 8 and e.workload.concurrency == 4 and not refused
    assert (row.ttft, row.tpot) == (0.12, 0.012)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prefill_num_workers": ""}, "number of workers not said"),
        ({"decode_attention_dp_size": "8.0"}, "attention data parallel or pipeline parallel"),
        ({"prefill_pp_size": "4.0"}, "attention data parallel or pipeline parallel"),
        ({"model_path": "acme/unknown"}, "no geometry for acme/unknown"),
        ({"silicon_data_source": "nothing"}, "the load is unknown"),
        ({"decode_tp_size": "1.0", "system": "a100_sxm"}, "number of workers not said"),
    ],
)
def test_what_is_not_said_is_not_guessed(change: dict[str, str], reason: str) -> None:
    if reason == "number of workers not said" and "system" in change:
        change = {**change, "decode_num_workers": "0"}
    rows, refused = read_split([{**ROW, **change}])
    assert not rows and refused == {reason: 1}


def test_the_same_measurement_counts_once() -> None:
    rows, refused = read_split([ROW, {**ROW, "id": "two"}])
    assert len(rows) == 1 and refused == {"the same measurement twice": 1}


def test_errors_are_relative_and_signed() -> None:
    (row,), _ = read_split([ROW])
    table = error_table([SplitScore(row, 0.24, 0.009), SplitScore(row, 0.12, 0.012)])
    total = table[-1]
    assert total["rows"] == 2 and total["ttft_median"] == pytest.approx(0.5)
    assert total["ttft_bias"] == pytest.approx(0.5) and total["tpot_bias"] == pytest.approx(-0.125)


def test_a_score_is_a_run_of_the_row() -> None:
    (row,), _ = read_split([ROW])
    found = score(row)
    assert 0.3 < found.tpot / row.tpot < 3 and 0.1 < found.ttft / row.ttft < 10


def test_the_real_table_has_rows_that_can_be_used(data_folder) -> None:
    rows, refused = read_split(read_table(data_folder("aiconfigurator-silicon") / FILE))
    assert len(rows) >= 20 and refused["number of workers not said"] > 500
