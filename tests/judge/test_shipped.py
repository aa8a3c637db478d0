"""What ships is what was scored: the result file, the constants and the page tell one story."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from minilab.facts.cost_constants import Constants
from minilab.facts.hardware import get_gpu
from minilab.judge import ship

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def result():
    """The committed result of ``benchmarks/calibration.py``."""
    return json.loads((FOLDER / "results" / "calibration.json").read_text())


@pytest.fixture
def benchmark(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "common", raising=False)
    import calibration

    yield calibration
    for name in ("common", "calibration"):
        sys.modules.pop(name, None)


def test_shipped_constants_are_the_scored_ones(result):
    """A fit that ships beside the error of another one is a false promise."""
    shipped = json.loads((Path(ship.__file__).parents[1] / "facts" / "constants.json").read_text())
    assert shipped["fits"] == ship.fits(result["silicon"], result["replay"])
    hopper = result["silicon"]["families"]["hopper"]["constants"]
    assert Constants.for_gpu(get_gpu("h100")).e_mem == pytest.approx(hopper["e_mem"], rel=1e-3)


def test_targets_are_judged_by_their_figures(benchmark, result):
    """A verdict typed in by hand, or of another figure, would show as met for ever."""
    figures = benchmark.reached(result)
    for row in result["targets"]:
        assert row["target"] == benchmark.TARGETS[row["what"]]
        assert row["reached"] == figures[row["what"]]
        assert row["met"] == (row["reached"] <= row["target"])
    worse = json.loads(json.dumps(result))
    worse["silicon"]["held"]["tpot"]["median"] = 0.5
    assert benchmark.reached(worse)["held half, TPOT median"] == 0.5


def test_targets_are_those_asked(benchmark):
    """Lowering one is a decision, not a slip."""
    assert list(benchmark.TARGETS.values()) == [0.08, 0.25, 0.18, 0.5, 0.06, 0.2, 0.01, 0.03]


def test_targets_are_met(result):
    """What the page claims; a change that loses it must say so."""
    assert [row["what"] for row in result["targets"] if not row["met"]] == []


def test_without_data_nothing_is_measured(benchmark, monkeypatch, capsys):
    """`make bench` on a reader's machine goes on with the next benchmark."""
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["calibration.py"])
    assert benchmark.main() == 0
    assert "needs aiconfigurator-silicon" in capsys.readouterr().out


def test_no_family_without_its_own_error(result):
    """Each shipped fit has a band for a known model; families also for an unseen one."""
    for name, entry in ship.fits(result["silicon"], result["replay"]).items():
        for metric in ("tpot", "ttft"):
            assert entry["error"][metric]["low"] < 1 < entry["error"][metric]["high"], name
        if "sm" in entry:
            assert entry["new_model"]["tpot"]["n"] > entry["error"]["tpot"]["n"]
