"""Bad input: one line that names what was given and the way out, status 2, nothing half written."""

from __future__ import annotations

import json
import resource
import urllib.request
from urllib.error import URLError

import pytest

from minilab.cli import sim
from minilab.facts import runlog_io
from minilab.sim.experiment import Experiment

SIM = ("sim", "--trace", "synthetic", "--limit", "20")

OPTIONS = {
    "no command": ((), "required: COMMAND"),
    "unknown command": (("smi",), "'smi'"),
    "misspelt option": (("sim", "--trase", "x"), "did you mean --trace"),
    "abbreviated option": (("sim", "--lim", "5"), "did you mean --limit"),
    "option of another command": (
        ("trace", "info", "x", "--slo", "y"),
        "minilab trace info --help",
    ),
    "two traces": (("sim", "--trace", "a", "--trace-file", "b"), "not allowed with"),
    "limit 0": (("sim", "--limit", "0"), "--limit: '0'; give a whole number of at least 1"),
    "limit -5": (("sim", "--limit", "-5"), "--limit: '-5'"),
    "limit 1e3": (("sim", "--limit", "1e3"), "--limit: '1e3'"),
    "rate nan": (("sim", "--rate", "nan"), "--rate: 'nan'; give a finite number above 0"),
    "rate inf": (("sim", "--rate", "inf"), "--rate: 'inf'"),
    "rate -1": (("sim", "--rate", "-1"), "--rate: '-1'"),
    "speedup 0": (("sim", "--speedup", "0"), "--speedup: '0'"),
    "seed -1": (("sim", "--seed", "-1"), "--seed: '-1'"),
    "kv blocks 0": (("sim", "--kv-blocks", "0"), "--kv-blocks: '0'"),
    "tp 0": (("sim", "--tp", "0"), "--tp: '0'"),
}

NAMES = {
    "trace": (("sim", "--trace", "azure-conv-2032"), "did you mean azure-conv-2023"),
    "model": (("sim", "--model", "lama-3.1-8b"), "did you mean llama-3.1-8b"),
    "gpu": (("sim", "--gpu", "h1000"), "did you mean h100"),
    "router": ((*SIM, "--router", "least"), "least-load?"),
    "policy": ((*SIM, "--policy", "prefil-first"), "did you mean prefill-first"),
    "weight dtype": ((*SIM, "--weight-dtype", "fp9"), "did you mean fp8"),
    "KV dtype": ((*SIM, "--kv-dtype", "fp9"), "did you mean fp8"),
    "arrivals": ((*SIM, "--arrivals", "pois"), "poisson, gamma, constant"),
    "trace info": (("trace", "info", "azure"), "azure-conv-2023 or azure-code-2023"),
    "trace fetch": (("trace", "fetch", "mooncake"), "mooncake-conversation"),
    "models": (("models", "qwen3-33b"), "did you mean qwen3-32b"),
    "gpus": (("gpus", "rtx4090"), "did you mean rtx-4090"),
    "cost": (("cost", "--model", "qwen3-33b"), "did you mean qwen3-32b"),
    "SLO metric": ((*SIM, "--slo", "itll=1"), "did you mean 'itl'"),
    "field of a sweep": (("sweep", "--over", "rte=1,2"), "did you mean rate"),
}

LIMITS = {
    "SLO in ms": ((*SIM, "--slo", "itl=50"), "did you mean 50ms?"),
    "empty SLO": ((*SIM, "--slo", ""), "such as ttft=0.5"),
    "SLO for a class only": ((*SIM, "--slo", "chat:ttft=1"), "class '' have none"),
    "budget": ((*SIM, "--max-num-batched-tokens", "9"), "below max_num_seqs 256"),
    "model does not fit": ((*SIM, "--model", "llama-3.1-405b"), "use tp=16"),
    "blocks without end": ((*SIM, "--kv-blocks", "99999999"), "at most 50000000 blocks"),
    "instances without end": ((*SIM, "--instances", "99999"), "at most 50000000 blocks"),
    "requests without end": (("sim", "--trace", "synthetic", "--limit", "99999999"), "at most"),
    "absurd prompt": ((*SIM, "--prompt-tokens", "99999999999"), "check the unit"),
    "years": ((*SIM, "--rate", "1e-6"), "at most 524288 s"),
    "jitter": ((*SIM, "--jitter", "3"), "a share from 0 to 1"),
    "acceptance": ((*SIM, "--num-speculative-tokens", "2", "--acceptance-rate", "7"), "0 to 1"),
    "option without effect": (("sim", "--prompt-tokens", "5"), "is for --trace synthetic"),
    "rate of a closed loop": ((*SIM, "--rate", "3", "--concurrency", "2"), "--rate says when"),
    "empty step": (("cost", "--decode", "0"), "an empty step"),
    "picture format": ((*SIM, "--plot", "x.gif"), "name it .png or .svg or .pdf"),
    "log format": ((*SIM, "--out", "x.txt"), "name it .jsonl or .parquet"),
    "table format": (("sweep", "--over", "rate=1", "--out", "x.xls"), "name it .csv or .jsonl"),
    "no folder": ((*SIM, "--out", "nowhere/x.jsonl"), "nowhere is not a folder"),
    "no cost file": ((*SIM, "--cost", "nowhere.json"), "no such file"),
    "no GPU file": ((*SIM, "--gpu-file", "nowhere.json"), "no such file"),
    "no config": (("models", "mine", "--config", "nowhere.json"), "no such file"),
    "no run log": (("goodput", "nowhere.jsonl", "--slo", "ttft=1"), "cannot be read"),
}


CASES = {**OPTIONS, **NAMES, **LIMITS}


@pytest.mark.parametrize("case", CASES)
def test_refused_in_one_line(refused, no_data, case):
    """Else: a traceback, or a run of something else than what was asked for."""
    words, said = CASES[case]
    assert said in refused(*words)


HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
TRACES = {
    "empty": ("", "own.csv:1: empty"),
    "no rows": (HEAD, "own.csv:2: no rows"),
    "no header": ("0,5,5\n", "own.csv:1: '0,5,5'"),
    "not a number": (HEAD + "0,5,5\n1,x,5\n", "own.csv:3: '1,x,5'"),
    "unsorted": (HEAD + "5,5,5\n4,5,5\n", "own.csv:3: TIMESTAMP"),
    "absurd": (HEAD + "0,99999999999,5\n", "own.csv:2: Context"),
    "no output": (HEAD + "0,9,0\n", "own.csv:2: Generated"),
    "ids": ('{"timestamp":0,"input_length":9,"output_length":1,"hash_ids":[1,2]}\n', "csv:1: 2 ha"),
}


@pytest.mark.parametrize("case", TRACES)
def test_trace_file_is_blamed_by_row(refused, tmp_path, case):
    """The file, the row and the value, or nobody finds the one line in twenty thousand."""
    text, said = TRACES[case]
    path = tmp_path / "own.csv"
    path.write_text(text)
    assert said in refused("sim", "--trace-file", path)


def test_trace_is_a_file(refused, azure_file):
    """A path given as a name is an easy slip: say which option takes it."""
    assert "use --trace-file" in refused("sim", "--trace", azure_file((0, 5, 5)))


def test_newer_run_log(refused, cli, tmp_path):
    """A log of a later minilab may mean something else by the same columns."""
    path = tmp_path / "run.jsonl"
    assert cli(*SIM, "--out", path).status == 0
    header, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(header), "minilab_runlog": 99}) + "\n" + rest)
    assert "version 99; this minilab reads up to version" in refused(
        "goodput", path, "--slo", "e2e=9"
    )


def test_offline(refused, no_data, monkeypatch):
    """No network is everyday; the line says what still works."""

    def offline(*_, **__):
        raise URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    line = refused("trace", "fetch", "azure-conv-2023")
    assert "no route to host" in line and "stand-in" in line


@pytest.mark.parametrize("option", ["--out", "--plot"])
def test_full_disk(refused, tmp_path, option):
    """What was there stays whole, and no temporary file is left to fill the disk further."""
    path = tmp_path / {"--out": "run.jsonl", "--plot": "run.png"}[option]
    path.write_text("before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        line = refused(*SIM, option, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in line and "cannot be written" in line
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_refused_before_the_run(refused, monkeypatch, tmp_path):
    """A place that cannot be written is told before an hour of simulation, not after it."""

    def never(*_, **__):
        raise AssertionError("the simulation ran")

    monkeypatch.setattr(Experiment, "run", never)
    refused(*SIM, "--out", tmp_path / "none" / "run.jsonl")
    refused(*SIM, "--plot", tmp_path)
    refused(*SIM, "--slo", "chat:ttft=1")


def test_interrupt(cli, monkeypatch):
    """Ctrl-C is not a fault: one line, and the status that shells give it."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "run", interrupted)
    assert cli(*SIM) == (130, "", "minilab: interrupted\n")


@pytest.mark.parametrize(("error", "status"), [(MemoryError(), 2), (RuntimeError("a\nb"), 1)])
def test_unexpected(cli, monkeypatch, error, status):
    """What nobody thought of is one line, too; ours has a status of its own."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Experiment, "run", fail)
    called = cli(*SIM)
    assert called.status == status
    assert called.err.count("\n") == 1
    shown = cli("--debug", *SIM)
    assert "Traceback" in shown.err and type(error).__name__ in shown.err
    assert "Traceback" in cli(*SIM, "--debug").err


def test_failed_write_is_no_result(cli, monkeypatch):
    """A result on stdout with status 2 would be taken for one."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runlog_io, "write", full)
    assert sim.runlog_io is runlog_io
    called = cli(*SIM, "--out", "x.jsonl", "--json")
    assert called.status == 2 and called.out == ""
