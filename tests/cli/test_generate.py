"""``minilab generate``: text to standard output, the rest of the story to stderr."""

from __future__ import annotations

import sys

import pytest

from minilab.facts import runlog_io

pytest.importorskip("torch", reason="needs torch")
TINY = ("--model", "tiny", "--device", "cpu", "--ignore-eos")


def test_one_text_is_printed_as_it_is_in_json(cli) -> None:
    """The streamed text, piece by piece, must be the text of the whole result."""
    words = ("generate", "go on", *TINY, "--temperature", 1, "--seed", 4, "--max-tokens", 40)
    aloud, whole = cli(*words), cli(*words, "--json")
    assert aloud.status == whole.status == 0
    (output,) = whole.json["outputs"]
    assert aloud.out == output["text"] + "\n"
    assert len(output["token_ids"]) == 40 and output["finish_reason"] == "length"
    assert output["prompt_tokens"] == 5
    assert "40 tokens in 40 steps" in aloud.err and "cpu, float32" in aloud.err


def test_a_stop_text_ends_it(cli) -> None:
    words = ("generate", "go on", *TINY, "--seed", 4, "--temperature", 1, "--max-tokens", 40)
    text = cli(*words, "--json").json["outputs"][0]["text"]
    stop = text[20:22]
    assert cli(*words, "--stop", stop).out == text[: text.index(stop)] + "\n"


def test_several_texts_share_their_steps(cli) -> None:
    called = cli("generate", "one", "two", "three", *TINY, "--max-tokens", 5)
    assert called.out.count("\n---\n") == 2
    assert "15 tokens in 5 steps" in called.err


def test_the_run_log_can_be_judged(cli, tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    cli("generate", "one", "two", *TINY, "--max-tokens", 6, "--out", path)
    log = runlog_io.read(path)
    assert log.requests["output_tokens"].tolist() == [6, 6]
    assert log.meta["data"] == {"name": "minilab generate", "kind": "measured"}
    judged = cli("goodput", path, "--slo", "ttft=60s,itl=60s", "--json")
    assert judged.json["attainment"] == 1.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "no/such"), "no/such: no such folder or file"),
        (("--model", "tiny", "--top-p", 2), "top_p is 2.0"),
        (("--model", "tiny", "--max-tokens", 5000), "lower max_tokens"),
        (("--model", "tiny", "--device", "cpu", "--cuda-graphs"), "CUDA graphs need a GPU"),
        (("--model", "tiny", "--out", "log.txt"), "name it .jsonl or .parquet"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(refused, words, said) -> None:
    assert said in refused("generate", "x", *words)


def test_without_torch_it_says_what_to_install(refused, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("minilab.engine")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    line = refused("generate", "x", "--model", "tiny")
    assert "torch is not installed" in line and "pip install 'minilab[gpu,model]'" in line
