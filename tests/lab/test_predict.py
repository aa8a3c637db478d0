"""Predictions: filed before the run, scored after it, and no way to be wise after the event."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import Any

import pytest

from minilab import lab
from minilab.facts.errors import InputError
from minilab.lab import prediction_file


def restart() -> None:
    """As after a kernel restart: what is in memory is gone, the file is not."""
    prediction_file._OPEN.clear()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "work" / "predictions.json"


def file_one(**changes: Any) -> None:
    said = {"value": 0.8, "low": 0.5, "high": 1.2, "confidence": 0.8, "unit": "s"}
    lab.predict("1.a", **{**said, **changes})


def test_a_prediction_is_filed_and_scored_in_one_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file_one()
    assert capsys.readouterr().out == "Prediction 1.a: filed, 0.8 s (0.5 to 1.2 s, 80% sure).\n"
    lab.outcome("1.a", 1.0)
    assert capsys.readouterr().out == (
        "Prediction 1.a: hit. It was 1 s; you said 0.8 s (0.5 to 1.2 s, 80% sure); "
        "your value was 20% too low.\n"
    )


@pytest.mark.parametrize(
    ("actual", "verdict", "error"),
    [(0.5, "hit", "60% too high"), (1.2, "hit", "33% too low"), (0.499, "miss", "60% too high"),
     (-0.8, "miss", "200% too high"), (0.0, "miss", "no relative error"), (0.801, "hit", "right")],
)  # fmt: skip
def test_the_ends_count_as_hits_and_the_error_keeps_its_sign(
    actual: float, verdict: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file_one()
    lab.outcome("1.a", actual)
    out = capsys.readouterr().out
    assert f"1.a: {verdict}." in out and error in out


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"confidence": 80}, "write 0.8"),
        ({"confidence": 0}, "between 0 and 1"),
        ({"confidence": 1}, "between 0 and 1"),
        ({"confidence": -0.2}, "between 0 and 1"),
        ({"low": 2, "high": 1}, "low first"),
        ({"low": 0.8, "high": 0.8}, "low first"),
        ({"value": 3.0}, "outside its own interval"),
        ({"value": "0.8"}, "not a finite number"),
        ({"high": math.inf}, "not a finite number"),
        ({"low": math.nan}, "not a finite number"),
        ({"value": True}, "not a finite number"),
    ],
)
def test_nonsense_is_refused_in_one_line_and_not_filed(
    changes: dict[str, Any], says: str, kept: Path
) -> None:
    with pytest.raises(InputError, match=says) as error:
        file_one(**changes)
    assert "\n" not in str(error.value)
    assert not kept.exists()


def test_a_guess_after_the_outcome_is_refused_also_after_a_restart() -> None:
    file_one()
    lab.outcome("1.a", 2.0)
    restart()
    with pytest.raises(InputError, match="outcome is known"):
        file_one(value=2.0, high=2.5)


def test_running_the_notebook_again_changes_nothing(kept: Path) -> None:
    for _ in range(3):
        file_one()
        lab.outcome("1.a", 2.0)
        restart()
    assert len(json.loads(kept.read_text())["predictions"]) == 1
    assert json.loads(kept.read_text())["predictions"][0]["changes"] == []


def test_a_change_before_the_outcome_is_recorded(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file_one()
    restart()
    file_one(value=1.0)
    assert "(changed 1 time)" in capsys.readouterr().out
    file_one(value=1.1)
    assert "(changed 2 times)" in capsys.readouterr().out
    row = json.loads(kept.read_text())["predictions"][0]
    assert [change[0] for change in row["changes"]] == [0.8, 1.0]


def test_an_outcome_without_a_prediction_says_what_comes_first() -> None:
    with pytest.raises(InputError, match="before the run"):
        lab.outcome("1.b", 3.0)
    file_one()
    with pytest.raises(InputError, match="not a finite number"):
        lab.outcome("1.a", None)  # type: ignore[arg-type]


def test_calibration_against_numbers_worked_by_hand() -> None:
    assert lab.calibration().hit_rate is None  # unavailable, not 0
    for number, (confidence, actual) in enumerate([(0.9, 1.0), (0.9, 5.0), (0.6, 1.0)]):
        lab.predict(f"1.{number}", 1, 0.5, 2, confidence)
        lab.outcome(f"1.{number}", actual)
    lab.predict("1.open", 1, 0.5, 2, 0.99)
    found = lab.calibration()
    assert found.scored == 3
    assert found.stated == pytest.approx(0.8)
    assert found.hit_rate == pytest.approx(2 / 3)
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.16) / 3)
    assert "too few to judge" in str(found)


@pytest.mark.parametrize(
    ("confidence", "hits", "says"),
    [(0.9, 5, "widen"), (0.9, 8, "fits"), (0.9, 10, "fits"), (0.5, 9, "narrow")],
)
def test_calibration_blames_nobody_for_chance(confidence: float, hits: int, says: str) -> None:
    for number in range(10):
        lab.predict(f"1.{number}", 1, 0.5, 2, confidence)
        lab.outcome(f"1.{number}", 1.0 if number < hits else 9.0)
    assert says in repr(lab.calibration())


def test_a_file_that_cant_be_read_is_left_alone(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.parent.mkdir()
    for content in ("{broken", '{"minilab_predictions": 99, "predictions": []}', "[]"):
        kept.write_text(content)
        restart()
        file_one()
        lab.outcome("1.a", 1.0)
        out = capsys.readouterr().out
        assert out.count("not read") == 1 and "1.a: hit" in out
        assert kept.read_text() == content


def test_a_folder_that_cant_be_written_leaves_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("MINILAB_WORK", str(blocked / "work"))
    file_one()
    lab.outcome("1.a", 1.0)
    out = capsys.readouterr().out
    assert out.count("stay in memory") == 1 and "1.a: hit" in out


def test_the_file_is_whole_and_readable_by_others(kept: Path) -> None:
    file_one()
    assert stat.S_IMODE(kept.stat().st_mode) & 0o444 == 0o444
    assert [p.name for p in kept.parent.iterdir()] == ["predictions.json"]


def test_a_solution_keeps_its_predictions_out_of_the_learners_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINILAB_WORK")
    (tmp_path / "solutions").mkdir()
    (tmp_path / "repo.toml").write_text("")
    monkeypatch.chdir(tmp_path / "solutions")
    file_one()
    lab.outcome("1.a", 1.0)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["repo.toml", "solutions"]
    (tmp_path / "labs").mkdir()
    monkeypatch.chdir(tmp_path / "labs")
    file_one()  # a learner beside it starts afresh, in work/
    assert (tmp_path / "work" / "predictions.json").is_file()
