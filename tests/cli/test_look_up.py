"""``models``, ``gpus``, ``trace`` and ``cost``: what is known, printed for people and as JSON."""

from __future__ import annotations

import json

import pytest

from minilab.facts import trace_fetch
from minilab.facts.cost import StepCost, StepShape
from minilab.facts.hardware import get_gpu, gpus
from minilab.facts.models import get_model, models


def test_models(cli):
    """Every model, in the table and in the list."""
    listed = cli("models", "--json").json
    assert [model["name"] for model in listed] == list(models())
    text = cli("models").out
    assert text.count("\n") == len(models()) + 1
    assert "llama-3.1-8b" in text


def test_one_model(cli):
    """The numbers are those of facts."""
    assert cli("models", "Llama-3.1-8B", "--json").json == get_model("llama-3.1-8b").to_dict()
    assert "131,072 B a token" in cli("models", "llama-3.1-8b").out


def test_own_config(cli, tmp_path):
    """A config.json of one's own, under a name of one's own."""
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 100,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    model = cli("models", "mine", "--config", path, "--json").json
    assert model["name"] == "mine"
    assert model["kv_bytes_per_token"]["bf16"] == 2 * 2 * 2 * 16 * 2


def test_gpus(cli, tmp_path):
    """Every GPU, and one's own among them."""
    assert [gpu["name"] for gpu in cli("gpus", "--json").json] == list(gpus())
    assert cli("gpus", "h100", "--json").json == get_gpu("h100").to_dict()
    assert "price_per_hour" in cli("gpus", "h100").out
    path = tmp_path / "gpus.json"
    card = {"name": "mine", "mem_bytes": 80e9, "mem_bw": 1.6e12, "flops": {"bf16": 9e14}}
    path.write_text(json.dumps(card))
    assert "mine" in cli("gpus", "--gpu-file", path).out


def test_trace_info_of_stand_in(cli, no_data):
    """Statistics of a stand-in are close to the trace's, so it must be said whose they are."""
    called = cli("trace", "info", "azure-code-2023", "--json")
    assert called.json["source"]["kind"] == "stand-in"
    assert called.json["loaded"]["rows"] == called.json["statistics"]["rows"] == 8819
    assert "a stand-in, not the trace" in called.err
    text = cli("trace", "info", "azure-code-2023").out
    assert "stand-in: made up" in text and "nothing can be shared" in text


def test_trace_info_of_synthetic(cli):
    """It has no file, no licence and no citation."""
    assert cli("trace", "info", "synthetic", "--json").json["source"]["kind"] == "synthetic"
    assert "none: not a file" in cli("trace", "info", "synthetic").out


def test_trace_info_of_real(cli, data_folder):
    """Hit rates of the sequential cache, under the name of their definition."""
    data_folder("mooncake-fast25")
    found = cli("trace", "info", "mooncake-conversation", "--json").json
    assert found["source"]["kind"] == "real"
    assert found["reuse"]["block"] == pytest.approx(0.366, abs=0.005)
    assert "read in sequence: block 0.36" in cli("trace", "info", "mooncake-conversation").out


def test_fetch_finds_what_is_there(cli, data_folder, monkeypatch, tmp_path):
    """A verified file costs no connection; its path goes to stdout for a script to read."""
    pytest.importorskip("pooch")
    known = trace_fetch.entry("azure-code-2023")
    path = tmp_path / known["file"]
    path.parent.mkdir(parents=True)
    path.write_bytes((data_folder("azure-llm-2023").parent / known["file"]).read_bytes())
    monkeypatch.setenv("MINILAB_CACHE", str(tmp_path))
    monkeypatch.setattr(trace_fetch.urllib.request, "urlopen", None)
    assert cli("trace", "fetch", "azure-code-2023").out == f"{path}\n"


def test_cost_by_hand(cli):
    """32 sequences of 2,048 tokens and a prompt of 512: the shape that the terms are made from."""
    words = ("cost", "--decode", 32, "--context", 2048, "--prefill", 512)
    result = cli(*words, "--json").json
    shape = {"num_tokens": 544, "num_seqs": 33, "context": 65536, "pairs": 131328}
    assert result["shape"] == {**shape, "window_context": 65536}
    assert result["seconds"] == pytest.approx(sum(result["terms"].values()))
    model = StepCost(get_model("llama-3.1-8b"), get_gpu("h100"))
    assert result["seconds"] == model.seconds(StepShape(544, 33, 65536, 131328))
    text = cli(*words).out
    assert text.startswith("llama-3.1-8b (bf16) on 1 x h100; constants: fitted on ")
    assert "65536 x 131072 B" in text


def test_cost_cuts_contexts_at_the_window(cli):
    """Windowed layers read no more than their window, however long the context."""
    model = get_model("gpt-oss-120b")
    words = ("cost", "--model", model.name, "--decode", 2, "--context", 1000, "--json")
    assert model.window < 1000
    shape = cli(*words).json["shape"]
    assert (shape["context"], shape["window_context"]) == (2000, 2 * model.window)


def test_cost_file(cli, tmp_path):
    """Four numbers instead of a data sheet: 0.01 + 3 x 0.001 s."""
    path = tmp_path / "cost.json"
    path.write_text(json.dumps({"w": 0.01, "f": 0.001, "k": 0.0, "s": 0.0}))
    words = ("cost", "--cost", path, "--decode", 3, "--context", 10, "--json")
    assert cli(*words).json["seconds"] == pytest.approx(0.013)
