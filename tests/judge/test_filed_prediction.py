"""A filed prediction stays as it was filed, and predicts nothing that has happened already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minilab.facts.errors import InputError
from minilab.facts.slo import SLOSet
from minilab.judge.filed_prediction import FiledPrediction, Said, now, utc
from minilab.judge.predicting import expected, selected, simulated
from minilab.sim.experiment import Experiment
from minilab.sim.sweep_row import numbers
from minilab.sim.workload_spec import WorkloadSpec

SAID = {"ttft_p99": Said(0.3, 0.2, 0.5, "person"), "goodput": Said(2.0, None, None, "simulator")}
FILED = FiledPrediction("2026-11-30T10:00:00+00:00", "ab" * 32, {}, {"tp": 1}, "ttft=0.5", SAID)


def test_it_reads_as_it_was_written(tmp_path: Path) -> None:
    FILED.write(tmp_path / "p.json")
    assert FiledPrediction.read(tmp_path / "p.json") == FILED


def test_a_filed_one_stays(tmp_path: Path) -> None:
    FILED.write(tmp_path / "p.json")
    before = (tmp_path / "p.json").read_bytes()
    with pytest.raises(InputError, match="holds a prediction already"):
        FILED.write(tmp_path / "p.json")
    assert (tmp_path / "p.json").read_bytes() == before


@pytest.mark.parametrize("change", ["filed", "said", "workload_hash"])
def test_an_edit_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "p.json"
    FILED.write(path)
    content = json.loads(path.read_text())
    if change == "said":
        content["said"]["ttft_p99"]["high"] = 0.9
    else:
        content[change] = "2020-01-01T00:00:00+00:00"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="changed after it was filed"):
        FiledPrediction.read(path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"minilab_prediction": 99}', "nonsense"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError):
        FiledPrediction.read(tmp_path / "p.json")


def test_against_a_run() -> None:
    began = utc("2026-11-30T10:00:00+00:00")  # the same second: files keep no finer time
    scored = {s.name: s for s in FILED.against("r", "ab" * 32, began, {"ttft_p99": 0.6})}
    assert list(scored) == ["ttft_p99"]  # what the run cannot tell is left out
    assert scored["ttft_p99"].hit is False
    assert scored["ttft_p99"].error == pytest.approx(-0.5)
    for digest, when, why in (
        ("cd" * 32, began, "is of workload"),
        (None, began, "does not say which requests"),
        ("ab" * 32, utc("2026-11-30T09:59:59+00:00"), "after the run had begun"),
    ):
        with pytest.raises(InputError, match=why):
            FILED.against("r", digest, when, {})


def test_now_is_not_after_what_follows() -> None:
    assert utc(now()) <= utc(now())
    with pytest.raises(InputError, match="ISO"):
        utc("yesterday")


def test_simulator_and_selector_speak_of_the_same_run() -> None:
    slos = SLOSet.parse("ttft=1,itl=0.05")
    spec = WorkloadSpec(trace="synthetic", limit=150, rate=3.0, prompt_tokens=1500)
    experiment = Experiment(workload=spec)
    work = spec.load()
    by_run = simulated(experiment, work, slos)
    row = numbers(experiment.run(work), str(slos), 1)
    assert by_run["ttft_p99"].value == row["ttft_p99"]
    low, high = by_run["ttft_p99"].low, by_run["ttft_p99"].high
    assert low is not None and high is not None and low < row["ttft_p99"] < high
    closed = selected(experiment, work, slos)
    assert closed["tpot_mean"].value == pytest.approx(row["tpot_mean"], rel=0.35)
    with pytest.raises(InputError, match="predict by simulator"):
        selected(experiment, work, SLOSet.parse("e2e=3"))


def test_a_person_s_ranges() -> None:
    found = expected(["ttft_p99=0.2..0.6"], {"ttft_p99": Said(9, None, None, "simulator")})
    assert found == {"ttft_p99": Said(0.4, 0.2, 0.6, "person")}
    for word, why in (
        ("ttft_p99=0.6..0.2", "not below"),
        ("ttft_p99=0.6", "NAME=LOW..HIGH"),
        ("ttft_p98=0.1..0.2", "unknown number"),
        ("ttft_p99=a..b", "NAME=LOW..HIGH"),
    ):
        with pytest.raises(InputError, match=why):
            expected([word], {})
