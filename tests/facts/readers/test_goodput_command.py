"""``minilab goodput FILE`` on other tools' files.

What these tests exist for: the readers being right and the command not using them.
"""

from __future__ import annotations

import json

import pytest

from minilab.cli.main import main


def test_a_recorded_run(bigbudget, capsys):
    words = ["goodput", str(bigbudget), "--slo", "ttft=300ms,tpot=40ms,stall=100ms"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["attainment"] == 22 / 80 and told["total"] == 80
    assert told["measured_by"]["tool"] == "vllm bench serve"
    assert main(words) == 0
    assert "6 requests/s asked for, 5.986 requests/s achieved" in capsys.readouterr().out


def test_what_a_file_cannot_tell(guidellm_file, capsys):
    """No percentage is printed for a limit on gaps that are not in the file."""
    assert main(["goodput", str(guidellm_file), "--slo", "stall=100ms"]) == 0
    out = capsys.readouterr().out
    assert "unavailable: SLO on stall" in out and "%" not in out


def test_which_run_of_several(save, sglang_run, capsys):
    path = str(save(sglang_run, {**sglang_run, "duration": 5.0}))
    words = ["goodput", path, "--slo", "ttft=0.3", "--json"]
    assert main(words) == 2
    assert "say which with part, 1 to 2" in capsys.readouterr().err
    assert main([*words, "--part", "2", "--format", "sglang"]) == 0
    assert json.loads(capsys.readouterr().out)["goodput"] == pytest.approx(2 / 5)
