"""``minilab calibrate engine`` as typed, on the tiny model."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs torch")

from minilab.cli.main import main
from minilab.facts.cost import WfksCost, load_cost
from minilab.judge import engine_steps

TINY = (
    *("calibrate", "engine", "--model", "tiny", "--kv-blocks", "200"),
    *("--max-num-batched-tokens", "32", "--max-num-seqs", "3", "--rounds", "1"),
)


def test_cost_file_predicts(capsys, tmp_path) -> None:
    """The file says what it rests on, and ``minilab sim --cost`` takes it as it is."""
    path = tmp_path / "engine.json"
    assert main([*TINY, "--out", str(path), "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert f"minilab sim --cost {path} --kv-blocks 200" in text
    about = json.loads(path.read_text())["about"]
    assert about["seed"] == 3 and about["machine"]["versions"]["torch"] and about["date"]
    assert about["setup"]["max_num_seqs"] == 3
    assert {"step", "seconds", "predicted", "error"} <= about["steps"][0].keys()
    assert 0 <= about["error"]["median"] <= about["error"]["max"]
    cost = load_cost(path)
    assert isinstance(cost, WfksCost) and cost.w + cost.f > 0
    words = ("--trace", "synthetic", "--limit", "20", "--cost", str(path), "--kv-blocks", "200")
    assert main(["sim", *words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["completed"] == 20 and result["cost"]["w"] == cost.w
    assert "about" not in result["config"]["cost"]  # when it was measured changes no experiment


def test_interrupted_calibration_goes_on(capsys, tmp_path, monkeypatch) -> None:
    """Ctrl-C in the fifth measurement; the second call measures the rest and no more."""
    store, measure = tmp_path / "steps.jsonl", engine_steps.StepBench.measure
    calls: list[object] = []

    def counted(self, point, steps=3):
        calls.append(point)
        if len(calls) == 8:  # 3 to warm up
            raise KeyboardInterrupt
        return measure(self, point, steps)

    monkeypatch.setattr(engine_steps.StepBench, "measure", counted)
    assert main([*TINY, "--store", str(store)]) == 130
    assert len(store.read_text().splitlines()) == 1 + 4
    calls.extend([None] * 100)
    assert main([*TINY, "--store", str(store), "--json"]) == 0
    kinds = len(json.loads(capsys.readouterr().out)["about"]["steps"])
    assert len(calls) - 108 == 3 + kinds - 4
    assert len(store.read_text().splitlines()) == 1 + kinds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "cost.txt"), "cannot end in '.txt'"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--max-num-seqs", "64"), "max_num_batched_tokens is 32"),
    ],
)
def test_refused_in_one_line(capsys, words, said) -> None:
    assert main([*TINY, *words]) == 2
    called = capsys.readouterr()
    assert called.out == "" and called.err.count("\n") == 1 and said in called.err
