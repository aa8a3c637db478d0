"""``minilab sweep``: every combination once, the same numbers as single runs, resumable."""

from __future__ import annotations

import csv
import json

import pytest

from minilab.sim.experiment import Experiment

BASE = ("--trace", "synthetic", "--limit", 120, "--slo", "ttft=0.1,itl=0.03")
SWEEP = ("sweep", *BASE, "--no-progress")
OVER = ("--over", "rate=5,20", "--over", "max_num_batched_tokens=512,2048")


def test_grid_agrees_with_sim(cli):
    """A row that isn't what `sim` gives for the same options would be compared with the wrong."""
    result = cli(*SWEEP, *OVER, "--json").json
    found = [(row["rate"], row["max_num_batched_tokens"]) for row in result["rows"]]
    assert found == [(5, 512), (5, 2048), (20, 512), (20, 2048)]
    rows = result["rows"]
    assert len({row["ttft_p99"] for row in rows}) == 4  # else they may agree by accident
    assert len({row["attainment"] for row in rows}) > 2
    for row in rows:
        options = ("--rate", row["rate"], "--max-num-batched-tokens", row["max_num_batched_tokens"])
        single = cli("sim", *BASE, *options, "--json").json
        assert row["attainment"] == single["attainment"]
        assert row["itl_p99"] == single["itl"]["p99"]


def test_seeds(cli):
    """Each point over all seeds, with an interval that stays a share."""
    result = cli(*SWEEP, "--over", "rate=5,20", "--seeds", "0,1,2", "--json").json
    assert [row["seed"] for row in result["rows"]] == [0, 1, 2] * 2
    shares = [row["attainment"] for row in result["rows"][3:]]
    assert len(set(shares)) > 1
    point = result["points"][1]
    assert point["attainment"] == pytest.approx(sum(shares) / 3)
    low, high = point["attainment_95"]
    assert 0 <= low < point["attainment"] < high <= 1


def test_seeds_of_a_trace(cli, no_data):
    """A trace has no seed: three times the same run would give an interval of width 0."""
    words = ("sweep", "--limit", 200, "--no-progress", "--over", "rate=20", "--seeds", "0,1,2")
    called = cli(*words, "--json")
    assert len({row["ttft_mean"] for row in called.json["rows"]}) == 3
    assert called.err.count("stand-in, not the trace") == 1


def test_kinds_of_values(cli):
    """Switches, names and numbers are read as the options of that name read them."""
    axes = ("--over", "prefix_cache=on,off", "--over", "policy=mixed,prefill-first")
    result = cli(*SWEEP, *axes, "--over", "kv-blocks=2000", "--json").json
    assert result["over"]["prefix_cache"] == [True, False]
    assert result["over"]["kv_blocks"] == [2000]
    assert len(result["rows"]) == 4
    text = cli(*SWEEP, *axes).out.splitlines()
    assert text[0].split()[:2] == ["prefix_cache", "policy"]
    assert text[1].split()[:2] == ["on", "mixed"]


def test_csv(cli, tmp_path):
    """A table for a spreadsheet; an unavailable number is an empty cell."""
    path = tmp_path / "sweep.csv"
    assert cli("sweep", *BASE[:-2], "--no-progress", *OVER, "--out", path).status == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rate"] for row in rows] == ["5.0", "5.0", "20.0", "20.0"]
    assert {row["attainment"] for row in rows} == {""}
    assert all(float(row["ttft_p50"]) > 0 for row in rows)


def test_goes_on_where_it_was(cli, tmp_path, monkeypatch):
    """A finished row is not run again, and the result is the same."""
    words = (*SWEEP, "--out", tmp_path / "rows.jsonl", "--json")
    first = cli(*words, "--over", "rate=5,50").json
    ran = []
    run = Experiment.run
    monkeypatch.setattr(Experiment, "run", lambda self, *a: (ran.append(self), run(self, *a))[1])
    second = cli(*words, "--over", "rate=5,50,100").json
    assert [experiment.workload.rate for experiment in ran] == [100]
    assert second["rows"][:2] == first["rows"]
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 3


def test_jobs(cli):
    """Two processes give the rows of one, in the same order."""
    assert cli(*SWEEP, *OVER, "--jobs", 2, "--json").json == cli(*SWEEP, *OVER, "--json").json


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("rate", "write it as rate=1,2,4"),
        ("rate=", "write it as rate=1,2,4"),
        ("rate=1,nan", "'nan'; give a finite number above 0"),
        ("kv_blocks=1.5", "'1.5'; give a whole number"),
        ("prefix_cache=yes", "'yes'; give on or off"),
        ("seed=1,2", "use --seeds 1,2"),
        ("slo=1", "unknown option 'slo'"),
        ("policy=mixed,fifo", "unknown policy 'fifo'"),
        ("max_num_seqs=99999", "below max_num_seqs 99999"),
        ("trace=synthetic,azure-conv-2033", "did you mean azure-conv-2023"),
    ],
)
def test_refused_before_anything_runs(refused, monkeypatch, over, said):
    """One bad value among a hundred must not cost the ninety-nine."""

    def never(*_, **__):
        raise AssertionError("a simulation ran")

    monkeypatch.setattr(Experiment, "run", never)
    assert said in refused(*SWEEP, "--over", over)


def test_axis_given_twice(refused):
    """The later one would silently win."""
    assert "was given before" in refused(*SWEEP, "--over", "rate=1", "--over", "rate=2")
