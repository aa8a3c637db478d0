"""``minilab sim`` on a mixture of experts: the options reach the experiment and the report."""

import json

import pytest

from minilab.cli.main import main

SMALL = [
    *("sim", "--trace", "synthetic", "--limit", "20", "--rate", "4", "--output-tokens", "20"),
    *("--model", "deepseek-v3", "--gpu", "h200", "--weight-dtype", "native"),
]


def test_options_reach_the_experiment(capsys):
    more = ["--dp", "8", "--link", "roce-200", "--overlap", "--eplb", "--redundant-experts", "8"]
    assert main([*SMALL, *more, "--expert-load", "zipf:0.5", "--congestion", "0.5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    config = result["config"]
    assert config["dp"] == 8 and config["expert_parallel"] and config["overlap"]
    assert (config["link"], config["congestion"], config["eplb"]) == ("roce-200", 0.5, True)
    assert (config["expert_load"], config["redundant_experts"]) == ("zipf:0.5", 8)
    assert result["gpus"] == 8 and result["completed"] == 20
    assert result["error_band"]["why_none"] and result["cost"]["dp"] == 8


def test_report_names_ranks_and_gpus(capsys):
    assert main([*SMALL, "--dp", "8", "--slo", "ttft=2,tpot=0.06"]) == 0
    text = capsys.readouterr().out
    assert "(8 x h200 each)" in text and "8 ranks" in text and "good requests/s" in text


def test_slices_stay_slices_unless_asked(capsys):
    for more, whole in (([], False), (["--expert-parallel"], True)):
        assert main([*SMALL, "--tp", "8", "--expert-load", "uniform", *more, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["config"]["expert_parallel"] is whole


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--dp", "8", "--prefill-instances", "1"], "not modelled on a split"),
        (["--dp", "8", "--alpha", "1e-6"], "not modelled on a split"),
        (["--dp", "3"], "use 2 redundant"),
        (["--dp", "8", "--congestion", "2"], "congestion"),
        (["--dp", "8", "--dispatch-dtype", "fp4"], "fp8 or bf16"),
        (["--dp", "8", "--expert-load", "heavy"], "give uniform"),
        (["--overlap"], "prefill"),
    ],
)
def test_contradictions_are_refused_in_a_line(capsys, more, word):
    assert main([*SMALL, *more]) != 0
    error = capsys.readouterr().err
    assert word in error and "Traceback" not in error
