"""The benchmark of the simulator's speed works and can fail; its numbers are not judged here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
TINY = ("--trace", "synthetic", "--limit", "30")


@pytest.fixture
def speed(monkeypatch, tmp_path):
    """The script as a module, with one tiny workload and results in a folder of the test's own."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "common", raising=False)
    import common
    import simulator_speed

    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(simulator_speed, "WORKLOADS", (simulator_speed.Workload("tiny", TINY, 10),))
    # A child of the test process counts the tests' own memory as its peak (Linux keeps the larger).
    monkeypatch.setattr(simulator_speed, "MAX_MIB", 4000)
    yield simulator_speed
    for name in ("common", "simulator_speed"):
        del sys.modules[name]


def test_result(speed, monkeypatch, tmp_path, capsys):
    """A number is worth what is written beside it: machine, versions, input, target, command."""
    monkeypatch.setattr(sys, "argv", ["simulator_speed.py", "--repeats", "2", "--strict"])
    assert speed.main() == 0
    result = json.loads((tmp_path / "results" / "simulator_speed.json").read_text())
    assert result["host"].keys() >= {"cpu", "cores", "python", "numpy", "date"}
    row = result["workloads"]["tiny"]
    assert row["completed"] == 30 and row["repeats"] == 2 and row["target"] == 10
    assert row["command"].startswith("minilab sim --trace synthetic --limit 30")
    found = row["requests_per_cpu_second"]
    assert 10 < found["min"] <= found["median"] <= found["max"]
    assert found["min"] < found["max"]  # two processes, not one read twice
    assert row["peak_mib"] > 20
    assert row["process_cpu_seconds"]["min"] > 30 / found["max"]
    assert row["input"]["kind"] == "synthetic" and len(row["workload_hash"]) == 64
    assert "target 10: met" in capsys.readouterr().out


def test_missed_target(speed, monkeypatch, tmp_path, capsys):
    """A floor that nobody can fall through checks nothing."""
    work = speed.Workload("tiny", TINY, 10**12)
    monkeypatch.setattr(speed, "WORKLOADS", (work,))
    words = ["simulator_speed.py", "--repeats", "1", "--no-write"]
    monkeypatch.setattr(sys, "argv", [*words, "--strict"])
    assert speed.main() == 1
    assert "MISSED" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", words)
    assert speed.main() == 0
    assert not (tmp_path / "results").exists()


def test_targets_are_those_claimed(speed, monkeypatch):
    """Lowering a floor is a decision, not a slip."""
    monkeypatch.undo()
    targets = {work.name: work.target for work in speed.WORKLOADS}
    assert list(targets.values()) == [25_000, 40_000, 20_000, 2_000]


def test_failing_command(speed):
    """A benchmark of a command that fails must not report a number."""
    with pytest.raises(SystemExit, match="exit status 2"):
        speed.measure(speed.Workload("bad", ("--gpu", "none-such"), 1), 1)
