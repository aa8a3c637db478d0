"""``minilab sim``: the object others read, and that each option does what it says."""

from __future__ import annotations

import json
import math

import pytest

from minilab.cli.args import option
from minilab.facts import runlog_io
from minilab.facts.slo import goodput
from minilab.sim.experiment import Experiment
from minilab.sim.workload_spec import WorkloadSpec

W1 = (
    *("sim", "--trace", "azure-conv-2023", "--limit", 300, "--model", "llama-3.1-8b"),
    *("--gpu", "h100", "--instances", 2, "--no-prefix-cache", "--slo", "ttft=0.5,itl=0.05"),
)
SYNTHETIC = ("sim", "--trace", "synthetic", "--limit", 60, "--json")
TIMES = ("ttft", "itl", "tpot", "stall", "e2e", "queue")
PROMISED = (
    *("requests", "completed", "simulated_seconds", "cpu_seconds", *TIMES, "attainment"),
    *("goodput", "goodput_per_gpu", "kv", "prefix", "data", "versions", "config", "gap"),
)


def test_object_keeps_its_shape(cli, no_data):
    """Scripts and the benchmark read these names; a renamed one breaks them silently."""
    result = cli(*W1, "--json").json
    assert set(PROMISED) <= set(result)
    assert result["requests"] == result["completed"] == 300
    for name in TIMES:
        assert list(result[name]) == ["p50", "p90", "p99", "mean"]
        assert 0 <= result[name]["p50"] <= result[name]["p90"] <= result[name]["p99"] < 60
    assert result["kv"].keys() >= {"peak_usage", "preemptions"}
    assert result["prefix"].keys() == {"token_hit_rate", "definition"}
    assert 0 < result["cpu_seconds"] < 60
    assert result["goodput_per_gpu"] == result["goodput"] / 2


def test_agrees_with_experiment(cli, no_data):
    """The command line must not have its own idea of an experiment or of goodput."""
    spec = WorkloadSpec(trace="azure-conv-2023", limit=300)
    log = Experiment(workload=spec, instances=2, prefix_cache=False).run()
    judged = goodput(log, "ttft=0.06,itl=0.02", 2)
    result = cli(*W1[:-1], "ttft=0.06,itl=20ms", "--json").json
    assert 0.2 < judged.attainment < 0.95  # else everything agrees
    assert result["attainment"] == judged.attainment
    assert result["goodput_per_gpu"] == judged.goodput_per_gpu
    assert result["simulated_seconds"] == log.duration
    assert result["config"] == log.meta["config"]
    assert result["workload_hash"] == log.meta["workload_hash"]


def test_no_slo_no_goodput(cli):
    """Without limits nothing is judged: null, not 0 and not everything."""
    result = cli(*SYNTHETIC).json
    assert [result[name] for name in ("attainment", "goodput", "goodput_per_gpu")] == [None] * 3


def test_unavailable_is_null(cli):
    """Outputs of one token have no gaps; a 0 would read as a perfect ITL."""
    result = cli(*SYNTHETIC, "--output-tokens", 1).json
    assert result["itl"] is result["gap"] is result["tpot"] is None
    assert result["ttft"]["p50"] > 0


def test_hit_rate_by_hand(cli, shared_prompts):
    """512 of 2 x 1024 prompt tokens hit; the second block must be computed for its logits."""
    base = ("sim", "--trace-file", shared_prompts, "--block-size", 512, "--json")
    assert cli(*base).json["prefix"]["token_hit_rate"] == 0.25
    assert cli(*base, "--no-prefix-cache").json["prefix"]["token_hit_rate"] == 0.0
    spread = cli(*base, "--instances", 2).json  # round robin: each instance sees one
    assert spread["prefix"]["token_hit_rate"] == 0.0
    text = cli(*base[:-1]).out
    assert "hit rate 0.25 = cached prompt tokens / prompt tokens, at first admission" in text


def test_too_large_is_counted(cli, azure_file):
    """One request that no pool could hold must not stop the others, nor count as served."""
    trace = azure_file((0, 900_000, 5), (1, 900, 5))
    called = cli("sim", "--trace-file", trace, "--slo", "ttft=1", "--json")
    result = called.json
    assert (result["requests"], result["completed"], result["rejected"]) == (2, 1, 1)
    assert result["attainment"] == 0.5
    text = cli("sim", "--trace-file", trace).out
    assert "1 completed, 1 rejected" in text
    assert "larger than the KV pool" in text


def test_all_too_large_is_an_error(refused, azure_file):
    """A run that served nobody says nothing; it has to say what would fit."""
    trace = azure_file((0, 900_000, 5), (1, 800_000, 5))
    line = refused("sim", "--trace-file", trace, "--kv-blocks", 100)
    assert "all 2 requests" in line and "800004 tokens" in line and "1600 (100 blocks" in line


def test_stand_in_says_so(cli, no_data):
    """Nobody may take a stand-in's numbers for the trace's, in a pipe or on a screen."""
    called = cli(*W1, "--json")
    assert called.json["data"]["kind"] == "stand-in"
    assert called.err.count("\n") == 1 and "a stand-in, not the trace" in called.err
    assert "stand-in: made up" in cli(*W1).out


def test_kv_budget_is_shown(cli):
    """The pool decides what fits, so its arithmetic is printed and gives the number of blocks."""
    kv = cli(*SYNTHETIC).json["kv"]
    words = kv["arithmetic"].replace(";", "").split()
    total, weights, torch, peak = (float(words[k]) for k in (2, 4, 7, 11))
    left = float(words[words.index("=") + 1])
    per_token = int(words[words.index("/") + 1])
    assert left == pytest.approx(0.9 * total - weights - torch - peak, abs=0.03)
    assert kv["blocks"] == pytest.approx(left * 2**30 / per_token / 16, rel=1e-3)
    assert kv["tokens"] == kv["blocks"] * 16
    assert cli(*SYNTHETIC, "--kv-blocks", 500).json["kv"]["tokens"] == 8000


@pytest.mark.parametrize(
    ("gpu", "said"), [("a100-80g", "prior, not fitted"), ("h100", "fitted on ")]
)
def test_constants_are_named(cli, gpu, said):
    """A prior looks as sure as a measurement unless the page says which it is."""
    assert f"step cost  constants: {said}" in cli(*SYNTHETIC[:-1], "--gpu", gpu).out


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (("--speedup", 10), "simulated_seconds"),
        (("--rate", 40), "simulated_seconds"),
        (("--seed", 1), "workload_hash"),
        (("--prompt-tokens", 4000), "ttft"),
        (("--output-tokens", 5), "e2e"),
        (("--jitter", 0.5), "workload_hash"),
        (("--arrivals", "gamma", "--cv", 3), "workload_hash"),
        (("--concurrency", 2), "workload_hash"),
        (("--tp", 2), "tpot"),
        (("--instances", 3), "e2e"),
        (("--weight-dtype", "fp8"), "tpot"),
        (("--kv-dtype", "fp8"), "kv"),
        (("--block-size", 256), "kv"),
        (("--kv-blocks", 150), "kv"),
        (("--max-num-batched-tokens", 300), "ttft"),
        (("--max-num-seqs", 2), "queue"),
        (("--policy", "prefill-first"), "stall"),
        (("--policy", "decode-first"), "queue"),
        (("--router", "random", "--instances", 2), "e2e"),
        (("--model", "qwen3-32b"), "tpot"),
        (("--gpu", "h200"), "tpot"),
        (("--num-speculative-tokens", 3), "gap"),
    ],
)
def test_option_has_an_effect(cli, options, differs):
    """An option that is parsed and dropped leaves a result that claims what was not run."""
    assert cli(*SYNTHETIC, *options).json[differs] != cli(*SYNTHETIC).json[differs]


def test_plain_options_reach_the_config(cli):
    """Every field of an experiment has the option of its name, but for two that read better."""
    text = cli("sim", "--help").out
    fields = {*Experiment.__dataclass_fields__, *WorkloadSpec.__dataclass_fields__}
    renamed = {"prefix_cache": "--no-prefix-cache", "file": "--trace-file"}
    for field in fields - {"workload"}:
        assert f" {renamed.get(field, option(field))} " in text.replace("\n", " "), field


def test_cost_file(cli, tmp_path):
    """Four fitted numbers replace the data sheet; the report says so, and what they are not of."""
    path = tmp_path / "cost.json"
    path.write_text(json.dumps({"w": 0.02, "f": 1e-5, "k": 0.0, "s": 0.0}))
    result = cli(*SYNTHETIC, "--cost", path).json
    assert result["tpot"]["p50"] >= 0.02
    assert result["cost"]["provenance"].startswith("w, f, k, s as given")
    path.write_text(json.dumps({"model": "qwen3-32b", "gpu": "h100"}))
    notes = cli(*SYNTHETIC, "--cost", path).json["notes"]
    assert any("model qwen3-32b, the KV pool of llama-3.1-8b" in note for note in notes)


def test_gpu_file(cli, tmp_path):
    """A card of one's own, with half of the bandwidth, decodes more slowly."""
    path = tmp_path / "gpus.json"
    card = {"name": "mine", "mem_bytes": 80e9, "mem_bw": 1.6e12, "flops": {"bf16": 9e14}}
    path.write_text(json.dumps(card))
    mine = cli(*SYNTHETIC, "--gpu-file", path, "--gpu", "mine").json
    assert mine["tpot"]["p50"] > 1.5 * cli(*SYNTHETIC).json["tpot"]["p50"]


def test_classes_without_requests_are_noted(cli):
    """A misspelt class would leave its requests to the default limits without a word."""
    result = cli(*SYNTHETIC, "--slo", "ttft=1;chta:itl=0.05").json
    assert any("'chta'" in note for note in result["notes"])


def test_out_holds_the_run(cli, tmp_path):
    """The run log is the run: judged again from its file, it gives the same numbers."""
    path = tmp_path / "run.jsonl"
    result = cli(*SYNTHETIC, "--slo", "ttft=0.07,itl=0.02", "--out", path).json
    log = runlog_io.read(path)
    assert len(log) == 60 and log.meta["config"] == result["config"]
    again = cli("goodput", path, "--slo", "ttft=0.07,itl=0.02", "--json").json
    assert again["attainment"] == result["attainment"] not in (0.0, 1.0)
    assert math.isclose(again["goodput_per_gpu"], result["goodput_per_gpu"])
    assert again["itl"] == result["itl"]


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_plot(cli, tmp_path, ending, start):
    """A picture in the format of its name, with its alternative text inside."""
    path = tmp_path / f"run.{ending}"
    assert cli(*SYNTHETIC, "--slo", "ttft=1", "--plot", path).status == 0
    data = path.read_bytes()
    assert data.startswith(start) and len(data) > 5000
    if ending != "pdf":  # there the text is compressed
        assert b"60 requests of" in data and b"of the requests meet ttft=1.0" in data
    assert list(tmp_path.iterdir()) == [path]


def test_real_trace(cli, data_folder):
    """The command of the README, on the trace itself."""
    data_folder("azure-llm-2023")
    called = cli(*W1, "--json")
    assert called.err == "" and called.json["data"]["kind"] == "real"
    assert called.json["data"]["sha256"].startswith("2f1e5b66")
    assert called.json["completed"] == 300


def test_timed_hit_rate_of_mooncake(cli, data_folder):
    """Round robin on 8 instances finds 0.137 of the prompt tokens; a broken cache, 0 or 0.37."""
    data_folder("mooncake-fast25")
    result = cli(
        *("sim", "--trace", "mooncake-conversation", "--instances", 8, "--block-size", 512),
        *("--kv-blocks", 16384, "--max-num-batched-tokens", 8192, "--max-num-seqs", 256, "--json"),
    ).json
    assert result["completed"] == 12031
    assert result["prefix"]["token_hit_rate"] == pytest.approx(0.137, abs=0.004)
