"""``minilab goodput``: a run log that can be judged by hand."""

from __future__ import annotations

import numpy as np
import pytest

from minilab.facts import runlog_io
from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests

GAPS = [[0.01], [0.03], [0.01], [0.01]]


@pytest.fixture
def log_file(tmp_path):
    """Four requests over 10 s: good, slow between tokens, late, failed."""

    def write(gaps: bool = True, **meta: object):
        requests = blank_requests(4)
        requests["arrival"] = np.array([0.0, 1.0, 2.0, 3.0])
        requests["scheduled"] = requests["arrival"]
        requests["first_token"] = np.array([0.2, 1.2, 4.0, 3.2])
        requests["finish"] = np.array([0.21, 1.23, 10.0, np.nan])
        requests["prompt_tokens"][:] = [100, 100, 2000, 2000]
        requests["output_tokens"][:] = 2
        requests["status"][:] = ["finished", "finished", "finished", "failed"]
        requests["slo_class"][:] = ["chat", "chat", "batch", "batch"]
        requests["tenant"][:] = ["a", "b", "a", "b"]
        path = tmp_path / "run.jsonl"
        runlog_io.write(RunLog(requests, GapLists.of(GAPS) if gaps else None, None, meta), path)
        return path

    return write


def test_by_hand(cli, log_file):
    """One of four is good, in 10 s, on 2 GPUs: the failed one counts as a miss."""
    result = cli("goodput", log_file(gpus=2), "--slo", "ttft=0.5,itl=20ms", "--json").json
    assert result["attainment"] == 0.25
    assert result["good"] == 1 and result["total"] == 4 and result["completed"] == 3
    assert result["goodput"] == pytest.approx(0.1)
    assert result["goodput_per_gpu"] == pytest.approx(0.05)
    low, high = result["attainment_95"]
    assert 0.03 < low < 0.06 < 0.65 < high < 0.75  # Wilson's interval for 1 of 4


def test_classes_and_tenants(cli, log_file):
    """Each class by its own limits; tenants are told apart though they have none."""
    called = cli("goodput", log_file(), "--slo", "chat:itl=0.02;batch:ttft=3", "--json")
    result = called.json
    assert result["by_class"]["chat"]["good"] == 1 and result["by_class"]["batch"]["good"] == 1
    assert [result["by_tenant"][name]["good"] for name in "ab"] == [2, 0]
    text = cli("goodput", log_file(), "--slo", "chat:itl=0.02;batch:ttft=3").out
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("chat")] == [
        ["chat", "2", "50.0%"]
    ]


def test_buckets(cli, log_file):
    """The mean over short and long prompts would describe neither."""
    words = ("goodput", log_file(), "--slo", "ttft=0.5", "--buckets", "1024,4096")
    rows = cli(*words, "--json").json["buckets"]
    assert [(row["n"], row["attainment"]) for row in rows] == [(2, 1.0), (2, 0.0), (0, None)]
    assert "1024 to 4095" in cli(*words).out


def test_price(cli, log_file):
    """2 GPUs at 1.80 an hour for 10 s buy one good request: 0.01."""
    words = ("goodput", log_file(gpus=2), "--slo", "ttft=0.5,itl=0.02", "--price", "1.8")
    assert cli(*words, "--json").json["cost_per_good_request"] == pytest.approx(0.01)
    assert "0.01 per good request at 1.8/h" in cli(*words).out


def test_gpus(cli, log_file):
    """The option wins over the log; a log that does not say is of one GPU."""
    words = ("goodput", log_file(gpus=2), "--slo", "ttft=0.5", "--json")
    assert cli(*words, "--gpus", "4").json["gpus"] == 4
    assert cli("goodput", log_file(), *words[2:]).json["gpus"] == 1


def test_unavailable(cli, log_file):
    """A log without gaps cannot tell ITL: null and the reason, not a pass."""
    words = ("goodput", log_file(gaps=False), "--slo", "itl=0.05")
    result = cli(*words, "--json").json
    assert result["attainment"] is result["goodput"] is result["attainment_95"] is None
    assert "unavailable: SLO on itl: the log cannot tell" in cli(*words).out


def test_stand_in(cli, log_file):
    """What a stand-in's run log says is no news of the trace."""
    path = log_file(data={"name": "azure-conv-2023", "kind": "stand-in"})
    called = cli("goodput", path, "--slo", "ttft=1", "--json")
    assert "stand-in" in called.err and called.json["data"]["kind"] == "stand-in"
